// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/weft-net/weft/internal/docker/cnm"
)

// newRecords returns records of a network of both families that has one attachment, which no endpoint has.
func newRecords(t *testing.T) *records {
	t.Helper()
	r, err := openRecords(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.putNetwork(network{ID: "n"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []pool{{ID: "four", Network: "n"}, {ID: "six", Network: "n", V6: true}} {
		if err := r.putPool(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.putEndpoint(endpoint{
		ID: "docker-1", Network: "n", Pool: "four", MAC: "02:42:00:00:00:07", Address: netip.MustParsePrefix("10.0.0.7/32"),
		Offered6: netip.MustParsePrefix("fd00::7/128"),
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

// atOnce makes calls at the same time, as near as two processors come to it, and returns how many had no error.
func atOnce(calls ...func() error) int {
	var ready, done atomic.Int64
	var all sync.WaitGroup
	for _, call := range calls {
		all.Go(func() {
			for ready.Add(1); ready.Load() < int64(len(calls)); {
				runtime.Gosched()
			}
			if call() == nil {
				done.Add(1)
			}
		})
	}
	all.Wait()
	return int(done.Load())
}

// TestOneEndpoint: of requests that name one address at once, one gets it.
func TestOneEndpoint(t *testing.T) {
	var creates, requests []func() error
	r := newRecords(t)
	as, es := &addresses{records: r}, &endpoints{records: r}
	for i := range 8 {
		requests = append(requests, func() error {
			_, err := as.requestAddress(t.Context(), cnm.RequestAddress{
				PoolID: "six", Options: map[string]string{cnm.OptionMAC: "02:42:00:00:00:07"},
			})
			return err
		})
		creates = append(creates, func() error {
			_, err := es.createEndpoint(t.Context(), cnm.CreateEndpoint{
				NetworkID: "n", EndpointID: fmt.Sprint("e", i), Interface: &cnm.EndpointInterface{Address: "10.0.0.7/32"},
			})
			return err
		})
	}
	if n := atOnce(requests...); n != 1 {
		t.Errorf("%d requests got the IPv6 address", n)
	}
	if n := atOnce(creates...); n != 1 {
		t.Errorf("%d endpoints have the address", n)
	}
}

// TestDroppedStays: what is undone while another call uses the same endpoint stays so, and calls at once do not undo each
// other's changes.
func TestDroppedStays(t *testing.T) {
	for range 10 {
		r := newRecords(t)
		as, es := &addresses{records: r}, &endpoints{records: r}
		request := func() error {
			_, err := as.requestAddress(t.Context(), cnm.RequestAddress{
				PoolID: "six", Options: map[string]string{cnm.OptionMAC: "02:42:00:00:00:07"},
			})
			return err
		}
		create := func() error {
			_, err := es.createEndpoint(t.Context(), cnm.CreateEndpoint{
				NetworkID: "n", EndpointID: "e", Interface: &cnm.EndpointInterface{Address: "10.0.0.7/32"},
			})
			return err
		}
		release := func() error {
			_, err := as.releaseAddress(t.Context(), cnm.ReleaseAddress{PoolID: "six", Address: "fd00::7/128"})
			return err
		}
		drop := func() error { return r.dropEndpoint("docker-1") }
		if n := atOnce(request); n != 1 {
			t.Fatal("the IPv6 address is refused")
		}
		if n := atOnce(create, release); n != 2 {
			t.Fatal("the endpoint or the release is refused")
		}
		if e, _ := r.byEndpoint("e"); e.ID == "" || e.Address6.IsValid() {
			t.Fatalf("of two changes at once the record has not both: %+v", e)
		}
		atOnce(create, release, drop)
		if left := r.all(); len(left) > 0 {
			t.Fatalf("an attachment that was undone is recorded again: %+v", left)
		}
	}
}
