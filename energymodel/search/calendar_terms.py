"""What is asked of a calendar: objective, deadline, start, demand charge, battery, contract?"""

from typing import NamedTuple

from energymodel.economics.cost import YEAR, OwnedPrice
from energymodel.economics.series import HOUR
from energymodel.errors import InputError
from energymodel.scenarios.scenario import Scenario
from energymodel.search.calendar_program import Battery, Contract
from energymodel.units import parse_quantity

OBJECTIVES = {"money": "USD", "carbon": "kg", "carbon_operational": "kg", "energy": "J"}
DISCHARGE_HOURS = 4.0
EFFICIENCY = 0.85  # of a battery, both ways: Cole & Karmakar 2023 (NREL/TP-6A40-85332), recalled
MONTH = YEAR / 12.0


class Terms(NamedTuple):
    """What was asked for, in SI."""

    minimize: str
    deadline: float | None
    start: int | None
    demand_charge: float
    battery: Battery | None
    contract: Contract | None
    carbon_price: float


def terms_of(
    scenario: Scenario,
    minimize: str,
    deadline: str | float | None,
    start: str | int,
    demand_charge: str | float | None,
    battery: str | None,
    efficiency: float,
    contract: str | None,
    carbon_price: str | float | None,
) -> Terms:
    """What a person asked for, checked and in SI.

    **Raises:** `InputError` for what cannot be read, or does not enter the objective or the price of the scenario.
    """
    if minimize not in OBJECTIVES:
        raise InputError(f'minimize: "{minimize}" is no objective of a calendar. Give one of {", ".join(OBJECTIVES)}.')
    price = scenario.system.market.price
    owned = isinstance(price, OwnedPrice)
    for name, given in (("demand_charge", demand_charge), ("contract", contract), ("carbon_price", carbon_price)):
        if given is not None and minimize != "money":
            raise InputError(f"{name}: {given} does not enter {minimize}. Leave it out, or minimize money.")
        if given is not None and name != "carbon_price" and not owned:
            raise InputError(
                f"{name}: {given}, but the rent of the scenario includes energy. Set system.market.price=owned, or "
                "leave it out."
            )
    begin: int | None = None
    if str(start) != "any":
        try:
            begin = int(str(start))
        except ValueError:
            raise InputError(f'start: "{start}" is no hour of the file. Give a whole number, or any.') from None
    charge = float(price.demand_charge) if isinstance(price, OwnedPrice) else 0.0
    return Terms(
        minimize,
        None if deadline is None else parse_quantity(deadline, "s", "deadline"),
        begin,
        (charge if demand_charge is None else _demand_charge(demand_charge)) if minimize == "money" else charge,
        None if battery is None else _battery(battery, efficiency),
        None if contract is None else _contract(contract),
        0.0 if carbon_price is None else parse_quantity(carbon_price, "USD/kg", "carbon_price"),
    )


def _demand_charge(text: str | float) -> float:
    """A charge over time, or for a month: "15 USD/(kW month)" or "15 USD/kW" [USD/(W s)]."""
    try:
        return parse_quantity(text, "USD/W", "demand_charge") / MONTH
    except InputError:
        return parse_quantity(text, "USD/(W s)", "demand_charge")


def _battery(text: str, efficiency: float) -> Battery:
    energy, _, power = text.partition(" at ")
    stored = parse_quantity(energy, "J", "battery")
    if not 0.0 < efficiency <= 1.0:
        raise InputError(f"battery_efficiency: {efficiency:g} is not above 0 and at most 1. Give for example 0.85.")
    rated = parse_quantity(power, "W", "battery power") if power else stored / (DISCHARGE_HOURS * HOUR)
    return Battery(stored, rated, efficiency)


def _contract(text: str) -> Contract:
    price, found, power = text.partition(" at ")
    if not found:
        raise InputError(f'contract: "{text}" has no power. Write it such as "0.04 USD/kWh at 20 MW".')
    return Contract(parse_quantity(power, "W", "contract power"), parse_quantity(price, "USD/J", "contract price"))


def notes_of(terms: Terms, owned: bool) -> list[str]:
    """What a reader of the result should know."""
    notes = []
    if terms.minimize == "money" and not owned:
        notes.append("The rent of the scenario includes energy: its price by the hour does not enter the money.")
    if terms.minimize in ("carbon_operational", "energy"):
        notes.append(f"Holding the equipment costs no {terms.minimize}: only the deadline keeps the run from waiting.")
    if terms.battery:
        notes.append(
            "The battery is free in this money; its saving says what it may cost. Lower bound and search hold for the "
            "start that is best without it."
        )
    return notes
