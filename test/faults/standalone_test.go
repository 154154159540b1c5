// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// recoveries returns the three ways to undo what a killed plugin has left.
func recoveries(w *world, conf string, other *pod) map[string]func(p *pod) {
	return map[string]func(*pod){
		"DEL": func(p *pod) { w.mustCall("DEL", conf, p) },
		"DEL without namespace": func(p *pod) {
			w.removeNetns(p)
			w.mustCall("DEL", conf, p)
		},
		"next ADD": func(*pod) {
			other := w.pod()
			w.mustCall("ADD", conf, other)
			w.mustCall("DEL", conf, other)
			// An empty lock file stays until the container's DEL or a GC.
			for _, lock := range filesIn(w.t, w.journal+"/locks") {
				_ = os.Remove(lock)
			}
		},
		"GC": func(p *pod) {
			w.removeNetns(p)
			if o := w.call("GC", gc(conf, other), nil, failure{}); o.err != nil {
				w.t.Fatalf("GC: %s %s", o.stdout, o.stderr)
			}
		},
	}
}

// After a plugin is killed at any step, the next call undoes everything.
func TestPluginKilledAtEveryStep(t *testing.T) {
	for _, typ := range []string{"bridge", "ptp"} {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t)
			conf := w.conf(typ)
			first := w.pod()
			adds := w.count("ADD", conf, first)
			dels := w.count("DEL", conf, first)
			other := w.pod() // the node is in use: the bridge exists before the ADD
			kept := w.mustCall("ADD", conf, other)
			before := takeSnapshot(t, w.dirs()...)
			kills := 0
			for name, recover := range recoveries(w, conf, other) {
				for k := 1; k <= adds; k++ {
					p := w.pod()
					if o := w.call("ADD", conf, p, failure{how: "kill", at: k}); !o.killed {
						t.Fatalf("ADD, step %d of %d: not killed: %v %s", k, adds, o.err, o.stdout)
					}
					kills++
					if name == "next ADD" && k == adds {
						w.mustCall("DEL", conf, p) // only the response is missing
					} else {
						recover(p)
					}
					expectSameHost(t, fmt.Sprintf("ADD killed at step %d of %d, %s", k, adds, name), before, w.dirs()...)
					w.removeNetns(p)
				}
				for k := 1; k <= dels; k++ {
					p := w.pod()
					w.mustCall("ADD", conf, p)
					if o := w.call("DEL", conf, p, failure{how: "kill", at: k}); !o.killed {
						t.Fatalf("DEL, step %d of %d: not killed: %v %s", k, dels, o.err, o.stdout)
					}
					kills++
					if name == "next ADD" && k == 1 {
						w.mustCall("DEL", conf, p) // nothing has begun: the attachment is complete
					} else {
						recover(p)
					}
					expectSameHost(t, fmt.Sprintf("DEL killed at step %d of %d, %s", k, dels, name), before, w.dirs()...)
					w.removeNetns(p)
				}
			}
			if o := w.call("CHECK", withPrev(conf, kept.stdout), other, failure{}); o.err != nil {
				t.Errorf("the other attachment: %s", o.stdout)
			}
			t.Logf("%s: %d steps of ADD, %d of DEL, %d kills, all in live calls", typ, adds, dels, kills)
		})
	}
}

// If any step of ADD fails, ADD undoes the others; a failed DEL is completed by the next one. The node is empty before,
// so the bridge is deleted, too.
func TestPluginFailsAtEveryStep(t *testing.T) {
	for _, typ := range []string{"bridge", "ptp"} {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t)
			conf := w.conf(typ)
			before := takeSnapshot(t, w.dirs()...)
			probe := newWorld(t)
			n := probe.count("ADD", probe.conf(typ), probe.pod())
			if o := probe.call("GC", gc(probe.conf(typ)), nil, failure{}); o.err != nil {
				t.Fatal(o.stdout)
			}
			expectSameHost(t, "GC", before, w.dirs()...)
			for k := 1; k <= n; k++ {
				p := w.pod()
				o := w.call("ADD", conf, p, failure{how: "error", at: k})
				if o.err == nil || !strings.Contains(o.stdout, errStep.Error()) {
					t.Fatalf("ADD with an error at step %d of %d: %s", k, n, o.stdout)
				}
				expectSameHost(t, fmt.Sprintf("ADD failed at step %d of %d", k, n), before, w.dirs()...)
				w.removeNetns(p)
			}
			t.Logf("%s: %d steps of ADD failed", typ, n)
		})
	}
}

// Plugins that are killed at random moments leave nothing.
func TestPluginKilledAtRandom(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 40
	}
	w := newWorld(t)
	conf := w.conf("bridge")
	p := w.pod()
	took := func(verb string) time.Duration {
		start := time.Now()
		w.mustCall(verb, conf, p)
		return time.Since(start)
	}
	add, del := nettest.NewAim(took("ADD")), nettest.NewAim(took("DEL"))
	before := takeSnapshot(t, w.dirs()...)
	hits := 0
	for i := range kills {
		p := w.pod()
		verb, aim := "ADD", add
		if i%2 == 1 {
			w.mustCall("ADD", conf, p)
			verb, aim = "DEL", del
		}
		o := w.call(verb, conf, p, failure{after: 1 + aim.Moment()})
		if aim.Record(o.killed); o.killed {
			hits++
		}
		if i%4 >= 2 {
			w.removeNetns(p)
		}
		w.mustCall("DEL", conf, p)
		w.mustCall("DEL", conf, p) // a repeated DEL is no error
		w.removeNetns(p)
		if i%10 == 9 || i == kills-1 {
			expectSameHost(t, fmt.Sprintf("kill %d", i), before, w.dirs()...)
		}
	}
	t.Logf("%d kills, %d hit a live call", kills, hits)
	if hits < kills/4 {
		t.Errorf("only %d of %d kills hit a live call", hits, kills)
	}
}

// Concurrent ADDs: no duplicate addresses, nothing left.
func TestPluginParallel(t *testing.T) {
	pods := 100
	if testing.Short() {
		pods = 30
	}
	w := newWorld(t)
	conf := w.conf("bridge")
	warm := w.pod()
	w.mustCall("ADD", conf, warm)
	w.mustCall("DEL", conf, warm)
	before := takeSnapshot(t, w.dirs()...)
	all := make([]*pod, pods)
	for i := range all {
		all[i] = w.pod()
	}
	each := func(verb string) {
		var wg sync.WaitGroup
		slots := make(chan struct{}, 16)
		for _, p := range all {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				if o := w.call(verb, conf, p, failure{}); o.err != nil {
					t.Errorf("%s: %s %s", verb, o.stdout, o.stderr)
				}
			})
		}
		wg.Wait()
	}
	each("ADD")
	if n := len(filesIn(t, w.data)); n != 2*pods {
		t.Errorf("%d addresses reserved, want %d", n, 2*pods)
	}
	expectUniqueAddrs(t, all)
	each("DEL")
	expectSameHost(t, "all gone", before, w.dirs()...)
}

// If the journal cannot be written, ADD fails before anything is changed; DEL still works.
func TestPluginWithoutRoomForItsJournal(t *testing.T) {
	w := newWorld(t)
	smallFS(t, w.journal, "96k")
	conf := w.conf("bridge")
	before := takeSnapshot(t, w.dirs()...)
	attached := w.pod()
	w.mustCall("ADD", conf, attached)
	_ = os.WriteFile(w.journal+"/filler", make([]byte, 1<<21), 0o600) // fill the file system
	full := takeSnapshot(t, w.dirs()...)
	p := w.pod()
	if o := w.call("ADD", conf, p, failure{}); o.err == nil || !strings.Contains(o.stdout, `"code": 5`) ||
		!strings.Contains(o.stdout, "WEFT_JOURNAL_DIR") {
		t.Errorf("ADD on a full disk: %s", o.stdout)
	}
	expectSameHost(t, "ADD on a full disk", full, w.dirs()...)
	w.mustCall("DEL", conf, attached)
	if err := os.Remove(w.journal + "/filler"); err != nil {
		t.Fatal(err)
	}
	if o := w.call("GC", gc(conf), nil, failure{}); o.err != nil {
		t.Fatal(o.stdout)
	}
	expectSameHost(t, "DEL on a full disk, then GC", before, w.dirs()...)
	readOnly(t, w.journal)
	if o := w.call("ADD", conf, p, failure{}); o.err == nil || !strings.Contains(o.stdout, `"code": 5`) {
		t.Errorf("ADD with a read-only journal: %s", o.stdout)
	}
	expectSameHost(t, "ADD with a read-only journal", before, w.dirs()...)
}
