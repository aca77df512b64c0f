"""Monitoring from loops, Hugging Face's Trainer and NVML."""

# pyright: reportOptionalMemberAccess=false, reportAttributeAccessIssue=false, reportUnusedExpression=false

import json
import sys
import threading
import time
from types import SimpleNamespace

import pytest

import energymodel as em
from monitor.recorded_run import STEPS, expected, plan, readings_until


def wait_until(holds, seconds=30.0):
    end = time.time() + seconds
    while not holds():
        assert time.time() < end, "waited in vain"
        time.sleep(0.01)


def test_a_loop_is_watched_with_its_meter(tmp_path):
    output = tmp_path / "run.jsonl"
    meter = em.RecordedMeter(readings_until(0.01))
    with em.Monitor(plan(), meter=meter, output=output, interval=0.01) as monitor:
        monitor.step(loss=9.0)
        monitor.step(5.0, tokens=2.0 * expected().batch)
        wait_until(lambda: monitor.state.meters)
        monitor.event("checkpoint", 4)
        monitor.step(loss=4, time_of_step=3)
    state = monitor.state
    assert (state.last.step, state.last.step_time, state.last.loss) == (3, 3.0, 4.0)
    assert state.tokens_per_step == 2.0 * expected().batch
    assert state.chip_power == pytest.approx(float(expected().outcome.power_busy))
    assert list(state.checkpoints) == [4.0]
    assert json.loads(output.read_text().splitlines()[-1])["step"] == 3


def test_an_error_of_the_training_goes_on_its_way():
    with pytest.raises(ZeroDivisionError), em.Monitor(plan()):
        1 / 0  # noqa: B018


def test_a_forecast_does_not_hold_up_the_training(monkeypatch):
    begun, ends = threading.Event(), threading.Event()

    def slow(state):
        begun.set()
        ends.wait(30.0)
        raise RuntimeError("the compiler broke")

    monkeypatch.setattr("energymodel.monitor.monitor.forecast", slow)
    monitor = em.Monitor(plan())
    steps = round(0.02 * STEPS)
    for step in range(1, 2 * steps):
        monitor.step(loss=9.0, step=step)
    assert begun.wait(30.0)
    assert monitor.state.last.step == 2 * steps - 1
    ends.set()
    monkeypatch.setattr("energymodel.monitor.monitor.forecast", lambda state: None)
    wait_until(lambda: any("the compiler broke" in finding.message for finding in monitor.status().findings))
    monitor.end()
    assert not any(finding.kind == "forecast" for finding in monitor.status().findings)


class BrokenMeter:
    def read(self):
        raise OSError("the bus fell off")


def test_a_meter_that_breaks_does_not_stop_the_training():
    with em.Monitor(plan(), meter=BrokenMeter(), interval=0.01) as monitor:
        monitor.step(loss=9.0)
        wait_until(lambda: monitor.status().findings)
    (finding,) = monitor.status().findings
    assert finding.kind == "meter"
    assert "the bus fell off" in finding.message


@pytest.fixture
def transformers(monkeypatch):
    """The one class of transformers that is built upon."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(TrainerCallback=object))


def test_the_trainer_tells_its_steps(transformers):
    monitor = em.Monitor(plan())
    callback = em.trainer_callback(monitor)
    args, control = object(), object()
    state = SimpleNamespace(global_step=0, log_history=[], is_world_process_zero=True)
    callback.on_train_begin(args, state, control)
    for step in range(1, 5):
        state.global_step = step
        if step % 2 == 0:
            logs = {"loss": 9.0 - step, "learning_rate": 1e-3}
            state.log_history.append({**logs, "step": step})
            callback.on_log(args, state, control, logs=logs)
    pauses = []
    monitor.event = pauses.append
    callback.on_evaluate(args, state, control)
    callback.on_save(args, state, control)
    callback.on_train_end(args, state, control)
    assert monitor.state.last.step == 4
    assert [loss for _, loss in monitor.state.recent_losses] == [7.0, 5.0]
    assert pauses == ["evaluation", "checkpoint"]


def test_other_ranks_are_silent(transformers):
    monitor = em.Monitor(plan())
    callback = em.trainer_callback(monitor)
    state = SimpleNamespace(global_step=1, log_history=[], is_world_process_zero=False)
    callback.on_log(object(), state, object(), logs={"loss": 9.0})
    assert not monitor.state.has_begun


class NvmlError(Exception):
    pass


@pytest.fixture
def nvml(monkeypatch):
    """Two GPUs, the second of which has no energy counter and is at a software power cap (reason 4)."""

    def energy(device):
        if device:
            raise NvmlError("Not Supported")
        return 1_000_000

    module = SimpleNamespace(
        NVMLError=NvmlError,
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=1,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPowerUsage=lambda device: 500_000 + device,
        nvmlDeviceGetTotalEnergyConsumption=energy,
        nvmlDeviceGetClockInfo=lambda device, kind: 1755,
        nvmlDeviceGetTemperature=lambda device, kind: 65,
        nvmlDeviceGetEnforcedPowerLimit=lambda device: 700_000,
        nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=37),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda device: 4 if device else 0,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_nvml_is_read_in_si(nvml):
    first, second = em.NvmlMeter().read()
    assert (first.device, first.power, first.energy, first.clock) == ("0", 500.0, 1000.0, 1.755e9)
    assert (first.temperature, first.power_limit, first.throttled) == (338.15, 700.0, 0.0)
    assert second.energy != second.energy  # not said
    assert second.throttled == 1.0


def test_a_machine_without_gpus_says_so(nvml):
    def refuse():
        raise NvmlError("Driver Not Loaded")

    nvml.nvmlInit = refuse
    with pytest.raises(em.InputError, match="Driver Not Loaded"):
        em.NvmlMeter()


@pytest.mark.parametrize(
    ("name", "build", "message"),
    [
        ("pynvml", em.NvmlMeter, r"energymodel\[monitor\]"),
        ("transformers", lambda: em.trainer_callback(em.Monitor(plan())), "pip install transformers"),
    ],
)
def test_what_is_read_must_be_installed(monkeypatch, name, build, message):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(em.InputError, match=message):
        build()
