"""Several runs held against each other: evaluations with their controls, crossings, comparisons."""
