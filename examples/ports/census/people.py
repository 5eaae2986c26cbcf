"""Write a CSV file shaped like the census income data: 15 columns, no header.

    python examples/ports/census/people.py people.csv --rows 20000

The people are drawn at random, the same ones for the same seed. Education, age, hours,
capital and marriage decide who earns more than 50K, with noise.
"""

import argparse
from pathlib import Path

import numpy as np

WORKCLASS = (
    *["Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov"],
    *["State-gov", "Without-pay", "Never-worked", "?"],
)
EDUCATION = (
    *["Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th"],
    *["HS-grad", "Some-college", "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters"],
    *["Prof-school", "Doctorate"],
)
MARITAL_STATUS = (
    *["Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed"],
    *["Married-spouse-absent", "Married-AF-spouse"],
)
RELATIONSHIP = (
    *["Husband", "Not-in-family", "Wife", "Own-child", "Unmarried", "Other-relative"],
)
OCCUPATION = (
    *["Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial"],
    *["Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical"],
    *["Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv"],
    *["Armed-Forces", "?"],
)
RACE = ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other")
COUNTRY = ("United-States", "Mexico", "Philippines", "Germany", "Canada", "India", "?")


def lines(rows, seed):
    """Return the lines of the file, without line ends."""
    draw = np.random.default_rng(seed)
    age = np.clip(draw.gamma(7, 5.5, rows), 17, 90).astype(int)
    school = np.clip(draw.normal(9.5, 2.6, rows), 0, 15).astype(int)
    hours = np.clip(draw.normal(40, 12, rows), 1, 99).astype(int)
    married = draw.integers(0, len(MARITAL_STATUS), rows) // 2
    job = draw.integers(0, len(OCCUPATION), rows)
    gain = np.where(draw.random(rows) < 0.08, draw.integers(1000, 20000, rows), 0)
    loss = np.where(draw.random(rows) < 0.05, draw.integers(500, 3000, rows), 0)
    score = 0.55 * (school - 10) + 0.04 * (age - 38) - 0.0025 * (age - 48) ** 2
    score += 1.8 * (married == 0) + 0.03 * (hours - 40) + gain / 4000
    score += np.where(np.isin(job, (4, 5)), 1.0, -0.4) + draw.logistic(0, 0.7, rows)
    rich = score > np.quantile(score, 0.76)
    columns = (
        age,
        _pick(WORKCLASS, draw.integers(0, 36, rows) % len(WORKCLASS)),
        draw.integers(12_000, 1_400_000, rows),
        _pick(EDUCATION, school),
        school + 1,
        _pick(MARITAL_STATUS, married),
        _pick(OCCUPATION, job),
        _pick(RELATIONSHIP, draw.integers(0, len(RELATIONSHIP), rows)),
        _pick(RACE, draw.integers(0, len(RACE), rows)),
        _pick(("Male", "Female"), draw.integers(0, 2, rows)),
        gain,
        loss,
        hours,
        _pick(COUNTRY, draw.integers(0, len(COUNTRY), rows)),
        _pick(("<=50K", ">50K"), rich.astype(int)),
    )
    return [",".join(map(str, person)) for person in zip(*columns, strict=True)]


def _pick(words, numbers):
    return np.array(words)[numbers]


def write(path, rows, seed=1):
    """Write `rows` lines to `path`."""
    Path(path).write_text("\n".join(lines(rows, seed)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path")
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    write(arguments.path, arguments.rows, arguments.seed)


if __name__ == "__main__":
    main()
