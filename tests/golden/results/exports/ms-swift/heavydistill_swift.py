"""Makes the reward of the set ``rl`` known to ms-swift as ``heavydistill``."""

from heavydistill_reward import reward
from swift.rewards import ORM, orms


class HeavyDistill(ORM):
    def __call__(self, completions, **columns):
        return reward(completions, **columns)


orms["heavydistill"] = HeavyDistill
