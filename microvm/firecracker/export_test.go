package firecracker

// Fakes is for tests from outside.
var Fakes = fakes
