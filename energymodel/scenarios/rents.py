"""Rents of accelerators by contract: the median of published quotes, or what other contracts and chips make likely."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from energymodel.economics.cost import HOUR
from energymodel.errors import InputError
from energymodel.scenarios.files import names, read_preset

CONTRACTS = {"rented": "reserved", "rented-on-demand": "on-demand", "rented-spot": "spot"}
"""Presets of prices in which each accelerator has its own rent, and the contract of the quotes that it follows."""
PURCHASE = "purchase price"


class _Level(NamedTuple):
    """Rent for a second [USD/s] or price [USD] of a chip, the variance of its logarithm, and where it is from."""

    amount: float
    variance: float = 0.0
    source: str = ""


@cache
def _levels(contract: str) -> Mapping[str, _Level]:
    """Levels by title of accelerator: rents of a contract, or prices of purchase."""
    chips = {name: read_preset("hardware", name) for name in names("hardware")}
    if contract == PURCHASE:
        return {chip["title"]: _Level(chip["price"]["value"]) for chip in chips.values() if "price" in chip}
    table, levels = read_preset("prices", "_quotes"), {}
    for name, chip in chips.items():
        if rows := [row[2:] for row in table["quotes"] if row[:2] == [name, contract]]:
            rents = np.array([rent / HOUR for _, rent, _ in rows])
            # The usual spread counts as much as one quote, so that two that agree by chance are not taken for certain.
            variance = np.var(np.log(rents)) + table["usual_spread"] ** 2 / len(rows)
            listed = "median USD/h of " + "; ".join(f"{publisher} {rent:.2f} ({day})" for day, rent, publisher in rows)
            levels[chip["title"]] = _Level(float(np.median(rents)), float(variance), listed)
    return levels


def rent(chip: Mapping[str, Any], contract: str) -> dict[str, Any]:
    """Rent of the accelerator of resolved tables: a quantity with the quotes, their dates and their spread.

    Where nobody quotes it, a prior: its rent under another contract, else its price of purchase, times the median
    ratio of the two among other accelerators, and as uncertain as these ratios and one quote together.

    **Raises:** `InputError` for such an accelerator without a price.
    """
    title, quoted = chip.get("title", "this accelerator"), _levels(contract)
    kind, level = "published", quoted.get(title)
    if level is None:
        kind, name = "prior", next((other for other in CONTRACTS.values() if title in _levels(other)), PURCHASE)
        basis = _levels(name) if name != PURCHASE else {**_levels(name), title: _Level(chip["price"]["value"])}
        if basis[title].amount <= 0.0:
            raise InputError(
                f"system.market.price: nobody quotes a {contract} rent of {title}, and its own price is 0 USD. Set "
                'system.market.price.chip_time, such as "2 USD/h".'
            )
        ratios = [other.amount / basis[key].amount for key, other in quoted.items() if key in basis]
        source = f"no quote, its {name} times the median ratio of {len(ratios)} other accelerators"
        spread = read_preset("prices", "_quotes")["usual_spread"]
        variance = basis[title].variance + float(np.var(np.log(ratios))) + spread**2
        level = _Level(basis[title].amount * float(np.median(ratios)), variance, source)
    source, distribution = f"{title}, {contract}: {level.source}", f"lognormal {math.sqrt(level.variance):.2g}"
    return {"value": level.amount, "unit": "USD/s", "kind": kind, "source": source, "distribution": distribution}


@cache
def _rents(name: str) -> tuple[Mapping[str, Any], ...]:
    """The rents that a preset by contract has, its own and those of all preset accelerators."""
    chips = (read_preset("hardware", chip) for chip in names("hardware"))
    return read_preset("prices", name)["chip_time"], *(rent(chip, CONTRACTS[name]) for chip in chips if "price" in chip)


def with_rent(system: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolved tables of a system in which a rent by contract is that of its accelerator; a rent of its own stays."""
    price = system["market"]["price"]
    for name, contract in CONTRACTS.items():
        if price.get("title") == read_preset("prices", name)["title"] and price["chip_time"] in _rents(name):
            price = {**price, "chip_time": rent(system["accelerator"], contract)}
    return {**system, "market": {**system["market"], "price": price}}
