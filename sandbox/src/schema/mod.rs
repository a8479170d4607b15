//! Structural schemas of custom resources: validation, defaulting, pruning, CEL. Pure functions; never stores anything.
