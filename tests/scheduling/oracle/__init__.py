"""An oracle of the scheduler: random clusters that are played turn by turn, and what must hold in each."""
