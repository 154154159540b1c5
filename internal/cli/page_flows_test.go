// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/web/view"
)

// Flows are observed once for all pages, again after the observation has ended, and an error is shown before that.
func TestPageFlows(t *testing.T) {
	begun := make(chan *lockedLog, 10)
	f := &pageFlows{observe: func(used func() time.Time, log *lockedLog) {
		if used().IsZero() {
			t.Error("it is observed, and no page uses it")
		}
		begun <- log
	}}
	show := func() (view.Flows, error) {
		v, err := f.view(t.Context(), url.Values{})
		if err != nil {
			return view.Flows{}, err
		}
		return v.(view.Flows), nil
	}
	end := func(log *lockedLog, err error) {
		log.mu.Lock()
		defer log.mu.Unlock()
		log.err, log.ended = err, true
	}
	for range 3 {
		if _, err := show(); err != nil {
			t.Fatal(err)
		}
		f.pairs()
	}
	first := <-begun
	if _, err := first.Write([]byte("weft: node2: no answer\nweft: node2: no answer\n")); err != nil {
		t.Fatal(err)
	}
	v, err := show()
	if err != nil || len(v.Notes) != 1 || v.Notes[0] != (view.Note{Text: "node2: no answer", Count: 2}) {
		t.Errorf("%+v, %v", v.Notes, err)
	}
	end(first, nil)
	if v, err = show(); err != nil || len(v.Notes) != 0 {
		t.Errorf("after the end: %+v, %v", v.Notes, err)
	}
	second := <-begun
	failed := errors.New("no agent answers")
	end(second, failed)
	if _, err := show(); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	if _, err := show(); err != nil {
		t.Error(err)
	}
	<-begun
	if len(begun) != 0 {
		t.Errorf("%d observations at the same time", len(begun))
	}
}
