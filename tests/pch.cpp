// Nothing: the target that compiles it owns the precompiled header.
