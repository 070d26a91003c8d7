package litesql

import (
	"errors"
	"runtime"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file talks to SQLite's C interface (as modernc.org/sqlite carries it),
// because database/sql tells neither where one statement of a text ends and the
// next begins, nor whether a statement is read-only.

// An event is one call of the authorizer: an operation that a statement being
// prepared would do.
type event struct {
	action   int32
	arg1     string
	arg2     string
	database string
	inner    string // the trigger or view that does it, "" if the statement itself
}

// A session is one empty in-memory database. Statements of the judged text are
// prepared in it and never run.
type session struct {
	tls    *libc.TLS
	db     uintptr
	hook   func(*libc.TLS, uintptr, int32, uintptr, uintptr, uintptr, uintptr) int32
	mine   bool // a statement of ours: allow it and take no note
	events []event
}

func openSession() (*session, error) {
	s := &session{tls: libc.NewTLS()}
	name, err := libc.CString(":memory:")
	if err != nil {
		s.tls.Close()
		return nil, err
	}
	defer libc.Xfree(s.tls, name)
	out := libc.Xcalloc(s.tls, 1, 8)
	if out == 0 {
		s.tls.Close()
		return nil, errors.New("no memory for a database")
	}
	defer libc.Xfree(s.tls, out)
	flags := int32(sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_CREATE | sqlite3.SQLITE_OPEN_MEMORY | sqlite3.SQLITE_OPEN_NOMUTEX)
	rc := sqlite3.Xsqlite3_open_v2(s.tls, name, out, flags, 0)
	s.db = libc.AtomicLoadPUintptr(out)
	if rc != sqlite3.SQLITE_OK {
		s.close()
		return nil, errors.New("SQLite does not open a database in memory")
	}
	// s.hook keeps the closure alive as long as SQLite may call it; closures do not move.
	s.hook = s.authorize
	if rc := sqlite3.Xsqlite3_set_authorizer(s.tls, s.db, *(*uintptr)(unsafe.Pointer(&s.hook)), 0); rc != sqlite3.SQLITE_OK {
		s.close()
		return nil, errors.New("SQLite does not take an authorizer")
	}
	return s, nil
}

func (s *session) close() {
	if s.db != 0 {
		sqlite3.Xsqlite3_close_v2(s.tls, s.db)
	}
	s.tls.Close()
	runtime.KeepAlive(s.hook)
}

// authorize notes what a statement would do. What would act while a statement is
// only prepared (some PRAGMAs do) is left out of it.
func (s *session) authorize(_ *libc.TLS, _ uintptr, action int32, a, b, database, inner uintptr) int32 {
	if s.mine {
		return sqlite3.SQLITE_OK
	}
	if len(s.events) < maxEvents {
		s.events = append(s.events, event{action, goString(a), goString(b), goString(database), goString(inner)})
	}
	switch action {
	case sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH:
		return sqlite3.SQLITE_IGNORE
	}
	return sqlite3.SQLITE_OK
}

func goString(p uintptr) string {
	if p == 0 {
		return ""
	}
	return libc.GoString(p)
}

// A prepared statement, as SQLite sees it.
type prepared struct {
	length   int  // bytes of the text that belong to it, the semicolon included
	empty    bool // white space or comment
	readOnly bool
	explain  bool
	err      string // SQLite's message when it refused, with length 0
}

// prepare compiles the first statement of text and forgets it. events holds
// what it would do.
func (s *session) prepare(text string) prepared {
	s.events = s.events[:0]
	z, err := libc.CString(text)
	if err != nil {
		return prepared{err: "out of memory"}
	}
	defer libc.Xfree(s.tls, z)
	out := libc.Xcalloc(s.tls, 2, 8)
	if out == 0 {
		return prepared{err: "out of memory"}
	}
	defer libc.Xfree(s.tls, out)
	rc := sqlite3.Xsqlite3_prepare_v2(s.tls, s.db, z, int32(len(text)+1), out, out+8)
	if rc != sqlite3.SQLITE_OK {
		return prepared{err: libc.GoString(sqlite3.Xsqlite3_errmsg(s.tls, s.db))}
	}
	statement, tail := libc.AtomicLoadPUintptr(out), libc.AtomicLoadPUintptr(out+8)
	p := prepared{length: int(tail - z)}
	if statement == 0 {
		p.empty = true
		return p
	}
	p.readOnly = sqlite3.Xsqlite3_stmt_readonly(s.tls, statement) != 0
	p.explain = sqlite3.Xsqlite3_stmt_isexplain(s.tls, statement) != 0
	sqlite3.Xsqlite3_finalize(s.tls, statement)
	return p
}

// run executes one statement of ours, which makes part of the schema.
func (s *session) run(text string) bool {
	s.mine = true
	defer func() { s.mine = false }()
	z, err := libc.CString(text)
	if err != nil {
		return false
	}
	defer libc.Xfree(s.tls, z)
	out := libc.Xcalloc(s.tls, 1, 8)
	if out == 0 {
		return false
	}
	defer libc.Xfree(s.tls, out)
	if sqlite3.Xsqlite3_prepare_v2(s.tls, s.db, z, -1, out, 0) != sqlite3.SQLITE_OK {
		return false
	}
	statement := libc.AtomicLoadPUintptr(out)
	rc := sqlite3.Xsqlite3_step(s.tls, statement)
	sqlite3.Xsqlite3_finalize(s.tls, statement)
	return rc == sqlite3.SQLITE_DONE || rc == sqlite3.SQLITE_ROW
}
