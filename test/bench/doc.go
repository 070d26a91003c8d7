// Package bench holds the benchmarks that need the world around the gateway:
// the reference SDK's client, and every engine of the path at once. `make bench`
// runs them beside `sallyport bench`.
package bench
