"""New deliberations on caches that are there: of a build, and of a student that has learnt."""
