package main

const sysExecveat = 322
