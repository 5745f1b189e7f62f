# The same as exports/trl/heavydistill_reward.py
