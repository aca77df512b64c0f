"""Results in a notebook: a page's table and figure, matplotlib, pandas and xarray; nothing loads before it is used."""

import importlib

import jax
import numpy as np
import pytest

from energymodel.errors import InputError
from energymodel.search.result import Front
from energymodel.system.outcome import TrainingOutcome
from report.reference_optimum import optimum
from report.reference_sensitivity import sensitivity
from report.stored_answers import evaluated, front

pandas = pytest.importorskip("pandas", reason="to_dataframe needs pandas")


def outcome() -> TrainingOutcome:
    return evaluated()[1]


@pytest.mark.parametrize("result", [outcome, optimum, front, sensitivity])
def test_a_result_has_a_figure_and_a_table(result):
    markup = result()._repr_html_()
    assert markup.count("<svg") == 1
    assert markup.count("<table") == 1
    assert markup.count("<style>") == 1
    assert ":root" not in markup  # the colors of the notebook stay
    assert "<script" not in markup
    assert len(markup) < 60_000


@pytest.mark.parametrize("result", [outcome, optimum, front, sensitivity])
def test_a_result_is_printed_as_a_table_with_units(result):
    text = str(result())
    assert "f64[" not in text
    assert "array(" not in text
    assert any(f" {unit}" in text for unit in ("kWh", "MWh", "GWh", "%"))
    assert max(map(len, text.splitlines())) <= 112


def test_what_is_traced_is_printed_as_it_is():
    words = []
    jax.eval_shape(lambda run: words.append(str(run)), outcome())
    assert words[0].startswith("TrainingOutcome(")


def test_many_runs_at_once_are_shown_as_they_are():
    many = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), outcome())
    assert str(many).startswith("TrainingOutcome(")
    assert many._repr_html_().startswith("<pre>TrainingOutcome(")


def test_the_table_of_an_outcome_has_all_outputs_in_si():
    frame = outcome().to_dataframe()
    assert len(frame) == 1
    assert frame.loc[0, "energy"] == np.asarray(outcome().energy.total)
    assert frame.loc[0, "energy.cooling"] == float(outcome().energy.cooling)
    assert frame.loc[0, "chip_time"] == float(outcome().chip_time)
    assert frame.attrs["units"]["energy"] == "J"
    assert set(frame.columns) == set(frame.attrs["units"])


def test_both_plans_are_rows():
    frame = optimum().to_dataframe()
    assert list(frame.index) == ["own plan", "found", "change"]
    assert frame.loc["found", "energy"] == pytest.approx(optimum().value)


def test_a_front_is_a_row_for_each_plan():
    plans: Front = front()
    frame = plans.to_dataframe()
    np.testing.assert_array_equal(frame["energy"], [5e8, 4.5e8, 4.4e8])
    np.testing.assert_array_equal(frame["exchange_time"], [0.008, 0.004, 0.001])


def test_numbers_of_a_sensitivity_are_rows():
    frame = sensitivity().to_dataframe()
    assert frame.loc["plan.clock", "energy.elasticity"] == 0.5
    assert np.isnan(frame.loc["system.market.price.delay_cost", "energy.elasticity"])


@pytest.mark.parametrize("result", [outcome, optimum, front, sensitivity])
def test_results_are_drawn_on_axes(result):
    pytest.importorskip("matplotlib", reason="figures need the extra `plot`")
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    pyplot.switch_backend("agg")
    axes = result().plot()
    assert axes.texts
    assert axes.patches or axes.lines
    assert pyplot.get_fignums() == [axes.figure.number], "a notebook shows figures of pyplot"
    pyplot.close(axes.figure)
    mine = Figure().add_subplot()
    assert result().plot(mine) is mine


def test_a_missing_library_is_named_with_its_remedy(monkeypatch):
    usual = importlib.import_module

    def refuse(wanted: str) -> object:
        if wanted == "pandas":
            raise ModuleNotFoundError(wanted)
        return usual(wanted)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(InputError, match=r"to_dataframe needs pandas\. Install it: pip install"):
        outcome().to_dataframe()
