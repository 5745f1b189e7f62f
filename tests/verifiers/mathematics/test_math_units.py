"""Units: conversions, compound units, and what the problem asks for."""

import subprocess
import sys

import pytest
from reckoning import boxed, outcome, problem
from text_tables import pairs

from heavydistill.verifiers.mathematics.verifier import Math

# Problem ‖ reference ‖ answers in the unit that is asked for, or in none.
ASKED = pairs(r"""
    How many kilograms does the box weigh? ‖ 5 ‖ 5\text{ kg} ‖ 5 kg ‖ 5\text{ kilograms} ‖ 5
    What is the mass of the box in grams? ‖ 5 ‖ 5\text{ g} ‖ 5\,\mathrm{g} ‖ 5\text{ grams} ‖ 5
    Give the angle in radians. ‖ \frac{\pi}{3} ‖ \frac{\pi}{3}\text{ rad}
    Give the angle in degrees. ‖ 60 ‖ 60^\circ ‖ 60^{\circ} ‖ 60\text{ degrees} ‖ 60°
    What is the temperature in degrees Celsius? ‖ 20 ‖ 20^\circ\text{C} ‖ 20^{\circ} ‖ 20\text{ °C}
    How many degrees Fahrenheit is it? ‖ 68 ‖ 68^\circ\text{F} ‖ 68^\circ
    What is the price in euros? ‖ 5 ‖ 5\text{ euros} ‖ €5 ‖ 5€ ‖ 5\text{ EUR}
    How many dollars does she pay? ‖ 5 ‖ \$5 ‖ 5\text{ dollars} ‖ 5 dollars
    How many days does it take? ‖ 3 ‖ 3\text{ days} ‖ 3 days
    How many months does it take? ‖ 3 ‖ 3\text{ months}
    There are 20 boys and 12 girls. How many boys are there? ‖ 20 ‖ 20\text{ boys} ‖ 20 boys
    How many liters of milk are left? ‖ 4 ‖ 4\text{ L} ‖ 4\text{ liters} ‖ 4\text{ litres}
    How many square feet is the area? ‖ 30 ‖ 30\text{ ft}^2 ‖ 30\text{ square feet}
    How fast, in miles per hour? ‖ 60 ‖ 60\text{ mph} ‖ 60\text{ mi/h} ‖ 60\text{ miles per hour}
    Find the energy in eV. ‖ 1.3 ‖ 1.3\text{ eV} ‖ 1.3\,\mathrm{eV} ‖ 1.3 eV
    Find the wavelength (in $\mathrm{nm}$). ‖ 700 ‖ 700\text{ nm} ‖ 700 nm ‖ 700\ \mathrm{nm}
    What is the wavelength in Angstroms? ‖ 6565 ‖ 6565\text{ Å} ‖ 6565\,\AA ‖ 6565\ \mathrm{\AA}
    Find the molar mass in g/mol. ‖ 46.08 ‖ 46.08\text{ g/mol} ‖ 46.08\,\mathrm{g\,mol^{-1}}
    What is the temperature in kelvin? ‖ 300 ‖ 300\text{ K} ‖ 300\,\mathrm{K} ‖ 300\text{ kelvin}
    What is the resistance in ohms? ‖ 5 ‖ 5\,\Omega ‖ 5\text{ ohms} ‖ 5\ \mathrm{\Omega}
    Find the acceleration in meters per second squared. ‖ 9.8 ‖ 9.8\,m\,s^{-2} ‖ 9.8\text{ m/s}^2
    Find the wave number in $\mathrm{cm}^{-1}$. ‖ 500 ‖ 500\,cm^{-1} ‖ 500\text{ cm}^{-1}
    How many minutes does the trip take? ‖ 90 ‖ 1 h 30 min ‖ 1\text{ hour and }30\text{ minutes}
    How many inches tall is he? ‖ 66 ‖ 5\text{ ft }6\text{ in} ‖ 5 feet 6 inches
    Find the entropy in J/(mol K). ‖ 8 ‖ 8\text{ J/(mol K)} ‖ 8\,\mathrm{J\,mol^{-1}\,K^{-1}}
    How much money does she have? ‖ 5 ‖ \$5 ‖ 5 dollars  ¦  How much time is left? ‖ 5 ‖ 5 hours
    How many boys are there? How heavy are they? ‖ 5 ‖ 5\text{ kg}
    How many boys are there? They weigh the same. What does one weigh? ‖ 50 ‖ 50\text{ kg}
    How many of the marbles are red? ‖ 5 ‖ 5\text{ marbles}
    How many red balls are left? ‖ 5 ‖ 5 balls
    How many miles per hour does she drive? ‖ 50 ‖ 50\text{ mph} ‖ 50\text{ miles per hour}
    It has the same number of square inches. In inches, what is the radius? ‖ 2 ‖ 2\text{ inches}
    How many birds are left? ‖ 9 ‖ 9\text{ birds} ‖ 9 birds
    Find the energy in J. ‖ 1.22e-18 ‖ 1.22 x 10⁻¹⁸ J ‖ 1.22x10^{-18} ‖ 1.22 × 10^{-18}\text{ J}
""")
# Problem ‖ reference ‖ answers with the right number and another unit than is asked for.
OTHER = pairs(r"""
    How many kilograms does the box weigh? ‖ 5 ‖ 5\text{ pounds} ‖ 5 lb ‖ 5\text{ g} ‖ 5\text{ m}
    What is the mass of the box in grams? ‖ 5 ‖ 5\text{ kg} ‖ 5\text{ ounces} ‖ 5\text{ lbs}
    Give the angle in radians. ‖ \frac{\pi}{3} ‖ \frac{\pi}{3}^\circ ‖ \frac{\pi}{3}\text{ degrees}
    Give the angle in degrees. ‖ 60 ‖ 60\text{ radians} ‖ 60\text{ rad} ‖ 60\text{ arcmin}
    What is the temperature in degrees Celsius? ‖ 20 ‖ 20^\circ\text{F} ‖ 20\text{ K}
    How many degrees Fahrenheit is it? ‖ 68 ‖ 68^\circ\text{C} ‖ 68\text{ K}
    What is the price in euros? ‖ 5 ‖ 5 dollars ‖ \$5 ‖ £5 ‖ 5\text{ yen} ‖ 5\text{ cents}
    How many dollars does she pay? ‖ 5 ‖ 5 euros ‖ €5 ‖ 5\text{ cents} ‖ 5\text{ rupees} ‖ £5
    How many days does it take? ‖ 3 ‖ 3\text{ months} ‖ 3\text{ hours} ‖ 3\text{ weeks} ‖ 3 years
    How many months does it take? ‖ 3 ‖ 3\text{ days} ‖ 3\text{ years} ‖ 3\text{ weeks}
    There are 20 boys and 12 girls. How many boys are there? ‖ 20 ‖ 20\text{ girls} ‖ 20 girls
    How many apples does Ann have, if she has 5 pears? ‖ 5 ‖ 5\text{ pears} ‖ 5\text{ kg} ‖ \$5
    How many liters of milk are left? ‖ 4 ‖ 4\text{ gallons} ‖ 4\text{ mL} ‖ 4\text{ quarts}
    How many square feet is the area? ‖ 30 ‖ 30\text{ ft} ‖ 30\text{ ft}^3 ‖ 30\text{ m}^2
    How fast, in miles per hour? ‖ 60 ‖ 60\text{ km/h} ‖ 60\text{ miles} ‖ 60\text{ m/s}
    Find the energy in eV. ‖ 1.3 ‖ 1.3\text{ J} ‖ 1.3\text{ keV} ‖ 1.3\text{ V} ‖ 1.3\text{ MeV}
    Find the wavelength (in $\mathrm{nm}$). ‖ 700 ‖ 700\text{ m} ‖ 700\text{ Å} ‖ 700\,\mu\mathrm{m}
    What is the wavelength in Angstroms? ‖ 6565 ‖ 6565\text{ nm} ‖ 6565\text{ m} ‖ 6565\text{ cm}
    Find the molar mass in g/mol. ‖ 46.08 ‖ 46.08\text{ kg/mol} ‖ 46.08\text{ mol} ‖ 46.08\text{ g}
    What is the temperature in kelvin? ‖ 300 ‖ 300^\circ\text{C} ‖ 300\text{ °F} ‖ 300\text{ J}
    What is the resistance in ohms? ‖ 5 ‖ 5\text{ V} ‖ 5\text{ A} ‖ 5\text{ k}\Omega
    Find the acceleration in meters per second squared. ‖ 9.8 ‖ 9.8\text{ m/s} ‖ 9.8\,cm\,s^{-2}
    Find the wave number in $\mathrm{cm}^{-1}$. ‖ 500 ‖ 500\text{ cm} ‖ 500\text{ m}^{-1}
    How many minutes does the trip take? ‖ 90 ‖ 1 h 20 min ‖ 90\text{ hours}
    How many inches tall is he? ‖ 66 ‖ 5\text{ ft }7\text{ in} ‖ 66\text{ ft}
    Find the entropy in J/(mol K). ‖ 8 ‖ 8\text{ J/mol} ‖ 8\text{ kJ/(mol K)} ‖ 8\text{ J K/mol}
    Two bags of 3 kilograms and 2 kilograms are weighed. What is the total? ‖ 5 ‖ 5 pounds
    A rope of 3 meters is cut. How long is the rest? ‖ 2 ‖ 2\text{ cm} ‖ 2\text{ feet} ‖ 2 yards
    It has the same number of square inches. In inches, what is the radius? ‖ 2 ‖ 2\text{ in}^2
    If the number of girls is 20, how many boys are there? ‖ 20 ‖ 20 girls ‖ 20\text{ kg}
    How many miles per hour does she drive? ‖ 50 ‖ 50\text{ miles} ‖ 50\text{ km/h} ‖ 50 hours
    It costs \$3 more. How much is it? ‖ 5 ‖ €5 ‖ 5\text{ cents} ‖ 5\text{ pounds}
""")
# Reference with a unit ‖ equal answers.
CONVERTED = pairs(r"""
    90\text{ min} ‖ 1.5\text{ h} ‖ 1 h 30 min ‖ 1\text{ hour }30\text{ minutes} ‖ 90 minutes ‖ 90
    1\text{ h }30\text{ min} ‖ 90\text{ minutes} ‖ 1.5\text{ hours} ‖ 1 hour and 30 minutes
    5\text{ ft }6\text{ in} ‖ 66\text{ inches} ‖ 5.5\text{ feet}  ¦  1.6\text{ nm} ‖ 16\text{ Å}
    3.2\times 10^{-19}\text{ J} ‖ 3.2 \times 10^{-12}\text{ erg}  ¦  2\text{ kJ/mol}
    5\,\mathrm{k\Omega} ‖ 5000\,\Omega ‖ 5000\text{ ohms}  ¦  9.8\,\mathrm{m\,s^{-2}} ‖ 9.8 m/s^2
    12\text{ m/s} ‖ 12 m/s ‖ 43.2\text{ km/h}  ¦  1\text{ L} ‖ 1000\text{ cm}^3 ‖ 1000\text{ mL}
    3\text{ N} ‖ 3\text{ kg m/s}^2 ‖ 3\,\mathrm{kg \cdot m/s^2}  ¦  1\text{ atm} ‖ 101325\text{ Pa}
    2\text{ lb }4\text{ oz} ‖ 36\text{ ounces}  ¦  5\text{ dollars }20\text{ cents} ‖ \$5.20
    5\text{ pounds} ‖ £5 ‖ 80\text{ ounces}  ¦  16\text{ oz} ‖ 1\text{ pound} ‖ 1\text{ pint}
    2\text{ light years} ‖ 2\text{ ly}  ¦  36\text{ cm}^2 ‖ 0.0036\text{ m}^2
""")
# Reference with a unit ‖ answers that measure something else, or another amount.
INCORRECT = pairs(r"""
    36\text{ cm}^2 ‖ 36\text{ cm}^3 ‖ 36\text{ cm} ‖ 36\text{ m}^2  ¦  5\text{ kg} ‖ 5\text{ pounds}
    90\text{ min} ‖ 1 h 20 min ‖ 90\text{ s} ‖ 90\text{ km} ‖ 9\text{ h}  ¦  5\text{ eV}
    5\text{ ft }6\text{ in} ‖ 5\text{ ft} ‖ 56\text{ in} ‖ 6\text{ ft }5\text{ in}
    1.6\text{ nm} ‖ 1.6\text{ Å} ‖ 1.6\text{ mol}  ¦  12\text{ m/s} ‖ 12 km/h ‖ 12\text{ m/s}^2
    5\,\mathrm{k\Omega} ‖ 5\,\Omega ‖ 5\text{ V}  ¦  300\text{ K} ‖ 300\text{ J} ‖ 30\text{ K}
""")
# Reference with a unit ‖ answers of which the units do not tell.
OPEN = pairs(r"""
    20^\circ\text{C} ‖ 293\text{ K} ‖ 68^\circ\text{F}  ¦  1\text{ year} ‖ 365\text{ days}
    5\text{ pounds} ‖ 2.27\text{ kg}  ¦  1\text{ ton} ‖ 1000\text{ kg}
    \$5 ‖ €4 ‖ £4  ¦  30^\circ ‖ \frac{\pi}{6}\text{ rad}
""")
# A unit beside the box of 5: problem ‖ what is right ‖ what is not.
BESIDE = pairs(r"""
    How many kilograms is it? ‖ It weighs $□$ kilograms. ‖ It weighs $□$ pounds.
    Give the answer in g/mol. ‖ It is $□$ g/mol. ‖ It is $□$ kg/mol.
    Give it in cm^3 per mole. ‖ It is \(□\) \(\mathrm{cm}^3 / \mathrm{mole}\). ‖ It is $□$ cm³.
    How many degrees Celsius? ‖ It is $□$ degrees Celsius. ‖ It is $□$ degrees Fahrenheit.
    How many boys are there? ‖ There are $□$ boys. ‖ There are $□$ liters.
    Find the rate in $s^{-1}$. ‖ It is $□$ s⁻¹. ‖ It is $□$ min⁻¹.
    Find the energy in eV. ‖ It is $□\text{ eV}$. ‖ It is $□\ \mathrm{keV}$.
""")


@pytest.mark.parametrize(
    ("is_right", "row"), [*((True, row) for row in ASKED), *((False, row) for row in OTHER)]
)
def test_a_value_is_correct_in_the_unit_that_is_asked_for_alone(is_right, row):
    text, reference, *answers = row
    for answer in answers:
        assert (outcome(reference, boxed(answer), text)[0] == "correct") == is_right, answer


@pytest.mark.parametrize(
    ("label", "row"),
    [
        *(("correct", row) for row in CONVERTED),
        *(("incorrect", row) for row in INCORRECT),
        *(("undecided", row) for row in OPEN),
    ],
)
def test_units_convert_if_they_measure_the_same(label, row):
    reference, *answers = row
    assert Math().check_reference(problem(reference)) is None
    for answer in (*answers, *([reference] if label == "correct" else [])):
        assert outcome(reference, boxed(answer))[0] == label, answer


@pytest.mark.parametrize(("text", "right", "wrong"), BESIDE)
def test_a_unit_beside_the_box_counts_as_one_in_it_does(text, right, wrong):
    assert outcome("5", right, text) == ("correct", "equal")
    assert outcome("5", wrong, text)[0] != "correct"


@pytest.mark.parametrize(
    "reference", [r"5\text{ flurbs}", r"5\text{ quux/s}", r"(1\text{ zork}, 2)"]
)
def test_a_reference_in_an_unknown_unit_is_told_before_a_run(reference):
    assert "is not known" in (Math().check_reference(problem(reference)) or "")
    text = "How many flurbs, or how many zork? Each makes a quux."
    assert Math().check_reference(problem(r"5\text{ flurbs}", text)) is None


def test_pint_is_loaded_only_for_a_unit():
    program = """
import json, sys
from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.mathematics.verifier import Math
math = Math()
posed = Problem(id="p", text="?", reference="2x+1", verifier="math")
math.decide(posed, math.extract(posed, "So it is $\\\\boxed{1+2x}$."))
assert "pint" not in sys.modules
math.prepare(Verifying())  # in a worker, where the time of a verdict is limited
assert "pint" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
