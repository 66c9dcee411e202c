"""The columns of the Adult income data, as a federation would declare them in public."""

from __future__ import annotations

ADULT = """
[table]
label = "income"
comment = "|"
missing = "fill"
columns = [
  {name = "age", bounds = [17, 90]},
  {name = "workclass", other = true, categories = ["Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov",
    "Local-gov", "State-gov", "Without-pay", "Never-worked"]},
  {name = "fnlwgt", skip = true},
  {name = "education", skip = true},
  {name = "education-num", bounds = [1, 16]},
  {name = "marital-status", categories = [["Married-civ-spouse", "Married-AF-spouse", "Married-spouse-absent"],
    "Divorced", "Never-married", "Separated", "Widowed"]},
  {name = "occupation", other = true, categories = ["Exec-managerial", "Prof-specialty", "Sales"]},
  {name = "relationship", categories = ["Wife", "Own-child", "Husband", "Not-in-family", "Other-relative",
    "Unmarried"]},
  {name = "race", categories = ["White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black"]},
  {name = "sex", categories = ["Female", "Male"]},
  {name = "capital-gain", bounds = [0, 99999]},
  {name = "capital-loss", bounds = [0, 4356]},
  {name = "hours-per-week", bounds = [1, 99]},
  {name = "native-country", other = true, categories = ["United-States"]},
  {name = "income", categories = [["<=50K", "<=50K."], [">50K", ">50K."]]},
]
"""
