package oci

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"sallyport.dev/sallyport"
)

// Pull finds the image that a reference names by digest. A tag can be moved by
// whoever may push, so it is only looked up: the answer is an error that says
// which digest it stands for now, unless takeTag says to take that.
//
// Credentials are those of `docker login`. Plain HTTP is spoken to loopback only.
func Pull(ctx context.Context, ref string, takeTag bool) (*Image, error) {
	b, digest, err := locate(ctx, ref, takeTag)
	if err != nil {
		return nil, err
	}
	img, err := find(ctx, b, b.descriptor())
	if err != nil {
		return nil, refuse(ref, err)
	}
	img.From = digest.String()
	return img, nil
}

// locate finds the document that a reference names.
func locate(ctx context.Context, ref string, takeTag bool) (*registry, name.Digest, error) {
	digest, tag, err := parse(ref)
	if err != nil {
		return nil, digest, err
	}
	opts := []remote.Option{
		remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithTransport(onlyTLS{remote.DefaultTransport}), remote.WithUserAgent("sallyport"),
	}
	if tag != nil {
		d, err := remote.Head(tag, opts...)
		if err != nil {
			return nil, digest, refuse(ref, err)
		}
		digest = tag.Context().Digest(d.Digest.String())
		if !takeTag {
			return nil, digest, &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute,
				Message: fmt.Sprintf("%s is a tag, and can mean another image tomorrow; now it is %s", ref, digest.DigestStr()),
				Hint:    fmt.Sprintf("sallyport sandbox pull %s, or add --resolve to take what the tag means now", digest)}
		}
	}
	got, err := remote.Get(digest, opts...)
	if err != nil {
		return nil, digest, refuse(ref, err)
	}
	h, err := v1.NewHash(digest.DigestStr())
	if err != nil {
		return nil, digest, refuse(ref, err)
	}
	return &registry{repo: digest.Context(), opts: opts, first: h, text: got.Manifest}, digest, nil
}

// parse reads REPOSITORY@sha256:HEX, with or without a tag before the @, which
// then says nothing, or REPOSITORY:TAG.
func parse(ref string) (name.Digest, name.Reference, error) {
	bad := func(err error) error {
		return &sallyport.Error{Code: sallyport.Invalid, Step: sallyport.Execute, Err: err,
			Message: fmt.Sprintf("%.200q names no image: %v", ref, err), Hint: "write REGISTRY/REPOSITORY@sha256:HEX, such as ghcr.io/owner/name@sha256:…"}
	}
	if repo, sum, ok := strings.Cut(ref, "@"); ok {
		if !strings.HasPrefix(sum, "sha256:") {
			return name.Digest{}, nil, bad(errors.New("only sha256 is known here"))
		}
		d, err := name.NewDigest(repo + "@" + sum)
		if err != nil {
			return name.Digest{}, nil, bad(err)
		}
		return d, nil, nil
	}
	t, err := name.NewTag(ref)
	if err != nil {
		return name.Digest{}, nil, bad(err)
	}
	return name.Digest{}, t, nil
}

// Name is the name that a pulled image gets where none is given: the last part of
// its repository.
func Name(ref string) string {
	repo, _, _ := strings.Cut(ref, "@")
	last := repo[strings.LastIndexByte(repo, '/')+1:]
	last, _, _ = strings.Cut(last, ":")
	return last
}

// registry is a repository.
type registry struct {
	repo  name.Repository
	opts  []remote.Option
	first v1.Hash // whose bytes are text
	text  []byte
}

// descriptor is that of the document that a reference named.
func (r *registry) descriptor() v1.Descriptor {
	return v1.Descriptor{Digest: r.first, Size: int64(len(r.text))}
}

// open implements blobs. It asks by digest alone: the addresses that a manifest
// may give for a layer are not followed.
func (r *registry) open(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	if d.Digest == r.first {
		return io.NopCloser(strings.NewReader(string(r.text))), nil
	}
	ref := r.repo.Digest(d.Digest.String())
	if d.MediaType.IsIndex() || d.MediaType.IsImage() {
		got, err := remote.Get(ref, r.opts...)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader(string(got.Manifest))), nil
	}
	l, err := remote.Layer(ref, r.opts...)
	if err != nil {
		return nil, err
	}
	return l.Compressed()
}

// Close implements blobs.
func (r *registry) Close() error { return nil }

// onlyTLS refuses plain HTTP to other machines, to which a redirect or a registry
// in a private network would otherwise lead, with the credentials.
type onlyTLS struct{ http.RoundTripper }

func (t onlyTLS) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !loopback(r.URL.Hostname()) {
		return nil, fmt.Errorf("%s speaks plain HTTP, which is only taken from this machine: give the registry TLS", r.URL.Host)
	}
	return t.RoundTripper.RoundTrip(r)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
