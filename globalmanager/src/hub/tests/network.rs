//! A simulated network that cuts, delays and forgets; managers and nodes that die at any moment.
