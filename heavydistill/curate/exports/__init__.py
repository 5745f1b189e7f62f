"""The sets of a build in the forms that other trainers read; ``export`` writes them."""
