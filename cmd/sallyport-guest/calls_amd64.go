package main

// makesTasks is true of clone, fork, vfork and clone3.
const makesTasks = "id == 56 || id == 57 || id == 58 || id == 435"
