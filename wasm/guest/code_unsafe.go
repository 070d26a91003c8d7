package guest

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"unsafe"

	"github.com/tetratelabs/wazero"
)

// A code keeps the machine code of one module in memory. wazero's own cache keeps
// it in a folder, which a process without a file system does not have.
type code struct {
	key  [32]byte // of the module on this machine, by wazero
	have []byte   // nil before it was compiled

	missed bool // wazero asked for another key: it is for another machine or version
}

// Get implements wazero's filecache.Cache.
func (c *code) Get(key [32]byte) (io.ReadCloser, bool, error) {
	if c.have == nil {
		return nil, false, nil
	}
	if key != c.key {
		c.missed = true
		return nil, false, errStale
	}
	return io.NopCloser(bytes.NewReader(c.have)), true, nil
}

var errStale = errors.New("compiled by another program, or for another processor")

// Add implements wazero's filecache.Cache.
func (c *code) Add(key [32]byte, content io.Reader) (err error) {
	c.key = key
	c.have, err = io.ReadAll(content)
	return err
}

// Delete implements wazero's filecache.Cache.
func (c *code) Delete([32]byte) error {
	c.missed = true
	return nil
}

// cache puts c where wazero keeps its folder: there is no other door. A wazero
// that has no such place fails here, and in each test.
func (c *code) cache() (wazero.CompilationCache, error) {
	cache := wazero.NewCompilationCache()
	place := reflect.ValueOf(cache).Elem().FieldByName("fileCache")
	own := reflect.ValueOf(c)
	if !place.IsValid() || !own.Type().AssignableTo(place.Type()) {
		return nil, errors.New("this version of wazero keeps compiled code elsewhere")
	}
	reflect.NewAt(place.Type(), unsafe.Pointer(place.UnsafeAddr())).Elem().Set(own)
	return cache, nil
}
