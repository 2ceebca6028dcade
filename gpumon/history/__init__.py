"""What was: the last frames by column (`recent`); coarser and longer tiers have their place here."""
