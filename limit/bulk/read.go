package bulk

import (
	"bytes"
	"context"
	"io"
)

// A Take waits until a call has room for so many bytes; nil is always there. (Part.Take)
type Take func(ctx context.Context, bytes int) error

// Want is take, where there is one.
func (take Take) Want(ctx context.Context, bytes int) error {
	if take == nil {
		return nil
	}
	return take(ctx, bytes)
}

// Read reads a body of which so many bytes are announced, -1 if it is not said how many.
// What is beyond Light waits for room. long is that there are more than most; what is
// returned beside it is the beginning.
func Read(ctx context.Context, body io.Reader, announced int64, most int, take Take) (b []byte, long bool, err error) {
	light := min(most, Light)
	b, err = io.ReadAll(io.LimitReader(body, int64(light)+1))
	if err != nil || len(b) <= light {
		return b, false, err
	}
	if most == light || announced > int64(most) {
		return b, true, nil
	}
	want := most
	if announced > int64(len(b)) { // else it is not true
		want = int(announced)
	}
	if err := take.Want(ctx, want); err != nil {
		return nil, false, err
	}
	buf := bytes.NewBuffer(b)
	if want == int(announced) {
		buf.Grow(want - len(b) + bytes.MinRead)
	}
	_, err = buf.ReadFrom(io.LimitReader(body, int64(most)+1-int64(len(b))))
	if err == nil && buf.Len() <= most {
		err = take.Want(ctx, buf.Len()) // the rest is others'
	}
	return buf.Bytes(), buf.Len() > most, err
}
