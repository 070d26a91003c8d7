package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
)

// An Event is one server-sent event.
type Event struct {
	Name string // "message" if the stream gave none
	Data []byte // lines joined by \n; valid until the next call of Next
}

// ErrEventTooLarge is returned for an event beyond the reader's bound.
var ErrEventTooLarge = errors.New("server-sent event is larger than the limit")

// An EventReader reads server-sent events. Comments are skipped, an event cut
// off by the end of the stream is dropped, as the standard says.
type EventReader struct {
	r      *bufio.Reader
	max    int
	begun  bool // the byte order mark was looked for
	skipLF bool // the last line ended with CR
	line   []byte
	name   []byte
	data   []byte
	id     string // of the event that is read
	lastID string
	retry  time.Duration

	light int          // bytes of an event; beyond them
	large func() error // is asked whether to read on, nil if nobody is
	asked bool         // for this event
}

// Large has ask called for each event as soon as more than light bytes of it have come,
// before the rest is read. Its error ends the stream.
func (e *EventReader) Large(light int, ask func() error) { e.light, e.large = light, ask }

// NewEventReader returns a reader that refuses an event of more than max bytes.
func NewEventReader(r io.Reader, max int) *EventReader {
	return &EventReader{r: bufio.NewReader(r), max: max, retry: -1}
}

// LastID returns the last event id that the stream set, "" if none. That of an
// event which was cut off does not count: it has yet to come.
func (e *EventReader) LastID() string { return e.lastID }

// Retry returns the reconnection time that the stream asked for, or -1.
func (e *EventReader) Retry() time.Duration { return e.retry }

// Next returns the next event, io.EOF at the end of the stream.
func (e *EventReader) Next() (Event, error) {
	e.name, e.data = e.name[:0], e.data[:0]
	hasData := false
	e.asked = false
	for size := 0; ; {
		if err := e.readLine(e.max - size); err != nil {
			return Event{}, err
		}
		if len(e.line) > 0 && e.line[0] == ':' {
			continue
		}
		size += len(e.line) + 1
		if len(e.line) == 0 {
			size, e.lastID = 0, e.id
			if !hasData {
				e.name = e.name[:0]
				continue
			}
			name := string(e.name)
			if name == "" {
				name = "message"
			}
			return Event{Name: name, Data: e.data[:len(e.data)-1]}, nil
		}
		if e.field() {
			hasData = true
		}
	}
}

// field takes one line in; it reports whether it was data.
func (e *EventReader) field() bool {
	name, value, _ := bytes.Cut(e.line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		e.data = append(append(e.data, value...), '\n')
		return true
	case "event":
		e.name = append(e.name[:0], value...)
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			e.id = string(value)
		}
	case "retry":
		if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
			e.retry = time.Duration(ms) * time.Millisecond
		}
	}
	return false
}

// readLine fills e.line with the next line, which ends with LF, CR or CRLF.
// It never waits for the byte after a CR.
func (e *EventReader) readLine(room int) error {
	e.line = e.line[:0]
	if !e.begun {
		e.begun = true
		if b, _ := e.r.Peek(1); len(b) == 1 && b[0] == 0xef {
			if b, _ = e.r.Peek(3); string(b) == "\xef\xbb\xbf" {
				_, _ = e.r.Discard(3)
			}
		}
	}
	for {
		if _, err := e.r.Peek(1); err != nil {
			return err
		}
		buf, _ := e.r.Peek(e.r.Buffered())
		if e.skipLF {
			e.skipLF = false
			if buf[0] == '\n' {
				_, _ = e.r.Discard(1)
				continue
			}
		}
		end := bytes.IndexByte(buf, '\n')
		if end < 0 {
			end = len(buf)
		}
		if cr := bytes.IndexByte(buf[:end], '\r'); cr >= 0 {
			end = cr
		}
		if len(e.line)+end > room {
			return ErrEventTooLarge
		}
		if e.large != nil && !e.asked && e.max-room+len(e.line)+end > e.light {
			e.asked = true
			if err := e.large(); err != nil {
				return err
			}
		}
		e.line = append(e.line, buf[:end]...)
		if end < len(buf) {
			e.skipLF = buf[end] == '\r'
			_, _ = e.r.Discard(end + 1)
			return nil
		}
		_, _ = e.r.Discard(end)
	}
}

// AppendEvent appends one event. Line breaks in data become further data lines.
func AppendEvent(dst []byte, name string, data []byte) []byte {
	if name != "" {
		dst = append(append(append(dst, "event: "...), name...), '\n')
	}
	for {
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			break
		}
		dst = append(append(append(dst, "data: "...), data[:end]...), '\n')
		if data[end] == '\r' && end+1 < len(data) && data[end+1] == '\n' {
			end++
		}
		data = data[end+1:]
	}
	return append(append(append(dst, "data: "...), data...), "\n\n"...)
}

// AppendComment appends a line that readers skip: a sign of life. text must be
// one line.
func AppendComment(dst []byte, text string) []byte {
	return append(append(append(dst, ": "...), text...), "\n\n"...)
}
