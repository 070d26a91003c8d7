package main

const sysExecveat = 281
