package main

// makesTasks is true of clone and clone3.
const makesTasks = "id == 220 || id == 435"
