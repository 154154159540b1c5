// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAgain: trouble is looked at again soon, and less soon the longer it lasts.
func TestAgain(t *testing.T) {
	c := New(Config{})
	var got []time.Duration
	for _, err := range []error{errors.New("x"), errors.New("x"), errors.New("y"), errors.New("x"), nil, errors.New("x")} {
		got = append(got, c.nextDelay(err))
	}
	want := []time.Duration{
		5 * time.Second,
		10 * time.Second,
		20 * time.Second,
		poolInterval,
		poolInterval,
		5 * time.Second,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestManyAtOnce: controllers that all believe that they lead come to the same as one.
func TestManyAtOnce(t *testing.T) {
	const more = "---\napiVersion: weft.dev/v1alpha1\nkind: AddressReservation\nmetadata: {name: r}\nspec: {addresses: [10.244.7.0/24]}\n"
	single, w := newWorld(t, calicoPools+more), newWorld(t, calicoPools+more)
	single.reconcile()
	var many sync.WaitGroup
	for range 4 {
		many.Go(func() {
			for range 3 {
				_, _ = Reconcile(t.Context(), w.Objects, nil, w.now, true) // a controller that was overtaken returns an error
			}
		})
	}
	many.Wait()
	w.reconcile()
	// The store sets the time of creation by the clock, which may be at the next second for one of them.
	created := regexp.MustCompile(`"creationTimestamp":"[^"]*",`)
	same := func(w *world) string { return created.ReplaceAllString(inOrder(t, w.text()), "") }
	if d := cmp.Diff(same(single), same(w)); d != "" {
		t.Errorf("-one +many:\n%s", d)
	}
}

// inOrder sorts each object's conditions by their type. Their order is that of the writes, of which an overtaken
// controller leaves out some.
func inOrder(t *testing.T, objects string) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(objects) {
		var o map[string]any
		if err := json.Unmarshal([]byte(line), &o); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if status, ok := o["status"].(map[string]any); ok {
			if all, ok := status["conditions"].([]any); ok {
				slices.SortFunc(all, func(a, b any) int {
					return strings.Compare(a.(map[string]any)["type"].(string), b.(map[string]any)["type"].(string))
				})
			}
		}
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	return out.String()
}

// TestLease: one leads; another one takes over when the first is silent for long enough by its own clock, however wrong
// the first one's clock is.
func TestLease(t *testing.T) {
	w := newWorld(t, "")
	a, b := lease{objects: w.Objects, me: "a"}, lease{objects: w.Objects, me: "b"}
	const long = time.Minute
	nowB := w.now
	hold := func(l *lease, now time.Time, want bool) {
		t.Helper()
		got, err := l.acquire(context.Background(), now, long)
		if err != nil || got != want {
			t.Errorf("%s at %s: %v %v, want %v", l.me, now.Format(time.TimeOnly), got, err, want)
		}
	}
	future := w.now.AddDate(10, 0, 0)
	hold(&a, future, true)
	hold(&b, nowB, false)
	hold(&b, nowB.Add(long/2), false)
	hold(&a, future.Add(time.Second), true) // a lives
	hold(&b, nowB.Add(long), false)
	hold(&b, nowB.Add(2*long-time.Second), false)
	hold(&b, nowB.Add(2*long), true)
	hold(&a, future.Add(time.Hour), false)
	hold(&b, nowB.Add(9*long), true)
}

// TestTakesOver: separate controllers renew their Lease more often than they reconcile, and another one takes over when the
// leader is silent for three renewals: pods wait for it.
func TestTakesOver(t *testing.T) {
	w := newWorld(t, "")
	start := func(me string) (leads func() bool, stop func()) {
		c := New(Config{
			Objects: w.Objects, Identity: me, Separate: true, Every: time.Hour, Renew: 300 * time.Millisecond, Now: time.Now, After: time.After,
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = c.Run(ctx) }()
		return func() bool { _, leads := c.Report(); return leads }, func() { cancel(); <-done }
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	renewed := func() string {
		o, err := w.Objects.Get(t.Context(), leases(), leases().Key(leaseNamespace, leaseName))
		if err != nil {
			t.Fatal(err)
		}
		return o.Version
	}
	first, stopFirst := start("first")
	defer stopFirst()
	eventually("the only controller does not lead", first)
	before := renewed()
	eventually("the Lease is not renewed between two passes", func() bool { return renewed() != before })
	second, stopSecond := start("second")
	defer stopSecond()
	stopFirst()
	eventually("the other controller has not taken over", second)
}

// TestDurationOfTheHolder: a candidate waits for as long as the holder has written, which may be of another version.
func TestDurationOfTheHolder(t *testing.T) {
	w := newWorld(t, "")
	a, b := lease{objects: w.Objects, me: "a"}, lease{objects: w.Objects, me: "b"}
	hold := func(l *lease, at, long time.Duration, want bool) {
		t.Helper()
		if got, err := l.acquire(t.Context(), w.now.Add(at), long); err != nil || got != want {
			t.Errorf("%s after %s: %v %v, want %v", l.me, at, got, err, want)
		}
	}
	hold(&a, 0, 90*time.Second, true)
	hold(&b, 0, 30*time.Second, false)
	hold(&b, 89*time.Second, 30*time.Second, false)
	hold(&b, 90*time.Second, 30*time.Second, true)
}
