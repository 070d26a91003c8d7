package conformance

import (
	"os"
	"testing"

	"sallyport.dev/sallyport/test/stage"
)

func TestMain(m *testing.M) {
	if os.Getenv(envCaller) != "" {
		callMany()
		return
	}
	stage.Main(m)
}
