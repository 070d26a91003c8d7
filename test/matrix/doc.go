// Package matrix has clients and servers of many makers meet at a gateway: each
// client in each era that it speaks uses each server. docs/matrix.md is what was
// seen.
package matrix
