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

// recoveries are the three ways by which what a killed plugin left is undone.
func recoveries(w *world, conf string, keeper *pod) map[string]func(p *pod) {
	return map[string]func(*pod){
		"DEL": func(p *pod) { w.must("DEL", conf, p) },
		"DEL without namespace": func(p *pod) {
			w.kill(p)
			w.must("DEL", conf, p)
		},
		"next ADD": func(*pod) {
			other := w.pod()
			w.must("ADD", conf, other)
			w.must("DEL", conf, other)
			// An empty lock file stays until the container's own DEL or a GC.
			for _, lock := range filesIn(w.t, w.journal+"/locks") {
				_ = os.Remove(lock)
			}
		},
		"GC": func(p *pod) {
			w.kill(p)
			if o := w.call("GC", gc(conf, keeper), nil, fault{}); o.err != nil {
				w.t.Fatalf("GC: %s %s", o.stdout, o.stderr)
			}
		},
	}
}

// A plugin killed at any step leaves nothing that the next call does not undo.
func TestPluginKilledAtEveryStep(t *testing.T) {
	for _, typ := range []string{"bridge", "ptp"} {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t)
			conf := w.conf(typ)
			first := w.pod()
			adds := w.count("ADD", conf, first)
			dels := w.count("DEL", conf, first)
			keeper := w.pod() // the node is in use: the bridge is not this ADD's
			kept := w.must("ADD", conf, keeper)
			before := look(t, w.dirs()...)
			kills := 0
			for name, recover := range recoveries(w, conf, keeper) {
				for k := 1; k <= adds; k++ {
					p := w.pod()
					if o := w.call("ADD", conf, p, fault{how: "kill", at: k}); !o.killed {
						t.Fatalf("ADD, step %d of %d: not killed: %v %s", k, adds, o.err, o.stdout)
					}
					kills++
					if name == "next ADD" && k == adds {
						w.must("DEL", conf, p) // all is done but the answer: nobody but the caller can know
					} else {
						recover(p)
					}
					same(t, fmt.Sprintf("ADD killed at step %d of %d, %s", k, adds, name), before, w.dirs()...)
					w.kill(p)
				}
				for k := 1; k <= dels; k++ {
					p := w.pod()
					w.must("ADD", conf, p)
					if o := w.call("DEL", conf, p, fault{how: "kill", at: k}); !o.killed {
						t.Fatalf("DEL, step %d of %d: not killed: %v %s", k, dels, o.err, o.stdout)
					}
					kills++
					if name == "next ADD" && k == 1 {
						w.must("DEL", conf, p) // nothing has begun: the attachment is whole
					} else {
						recover(p)
					}
					same(t, fmt.Sprintf("DEL killed at step %d of %d, %s", k, dels, name), before, w.dirs()...)
					w.kill(p)
				}
			}
			if o := w.call("CHECK", withPrev(conf, kept.stdout), keeper, fault{}); o.err != nil {
				t.Errorf("the attachment that nobody touched: %s", o.stdout)
			}
			t.Logf("%s: %d steps of ADD, %d of DEL, %d kills, all in live calls", typ, adds, dels, kills)
		})
	}
}

// An error at any step of ADD is undone by that ADD; one of DEL by the next DEL. Here nothing was there before, so the
// bridge goes as well.
func TestPluginFailsAtEveryStep(t *testing.T) {
	for _, typ := range []string{"bridge", "ptp"} {
		t.Run(typ, func(t *testing.T) {
			w := newWorld(t)
			conf := w.conf(typ)
			before := look(t, w.dirs()...)
			probe := newWorld(t)
			n := probe.count("ADD", probe.conf(typ), probe.pod())
			if o := probe.call("GC", gc(probe.conf(typ)), nil, fault{}); o.err != nil {
				t.Fatal(o.stdout)
			}
			same(t, "GC", before, w.dirs()...)
			for k := 1; k <= n; k++ {
				p := w.pod()
				o := w.call("ADD", conf, p, fault{how: "error", at: k})
				if o.err == nil || !strings.Contains(o.stdout, errStep.Error()) {
					t.Fatalf("ADD with an error at step %d of %d: %s", k, n, o.stdout)
				}
				same(t, fmt.Sprintf("ADD failed at step %d of %d", k, n), before, w.dirs()...)
				w.kill(p)
			}
			t.Logf("%s: %d steps of ADD failed", typ, n)
		})
	}
}

// Plugins killed at random moments leave nothing.
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
		w.must(verb, conf, p)
		return time.Since(start)
	}
	add, del := nettest.NewAim(took("ADD")), nettest.NewAim(took("DEL"))
	before := look(t, w.dirs()...)
	hits := 0
	for i := range kills {
		p := w.pod()
		verb, aim := "ADD", add
		if i%2 == 1 {
			w.must("ADD", conf, p)
			verb, aim = "DEL", del
		}
		o := w.call(verb, conf, p, fault{after: 1 + aim.Moment()})
		if aim.Told(o.killed); o.killed {
			hits++
		}
		if i%4 >= 2 {
			w.kill(p)
		}
		w.must("DEL", conf, p)
		w.must("DEL", conf, p) // twice is no error
		w.kill(p)
		if i%10 == 9 || i == kills-1 {
			same(t, fmt.Sprintf("kill %d", i), before, w.dirs()...)
		}
	}
	t.Logf("%d kills, %d hit a live call", kills, hits)
	if hits < kills/4 {
		t.Errorf("only %d of %d kills hit a live call", hits, kills)
	}
}

// Many ADDs at once: no address twice, nothing left.
func TestPluginParallel(t *testing.T) {
	pods := 100
	if testing.Short() {
		pods = 30
	}
	w := newWorld(t)
	conf := w.conf("bridge")
	warm := w.pod()
	w.must("ADD", conf, warm)
	w.must("DEL", conf, warm)
	before := look(t, w.dirs()...)
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
				if o := w.call(verb, conf, p, fault{}); o.err != nil {
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
	unique(t, all)
	each("DEL")
	same(t, "all gone", before, w.dirs()...)
}

// A journal that cannot be written refuses ADD before anything is changed; what is attached is still detached.
func TestPluginWithoutRoomForItsJournal(t *testing.T) {
	w := newWorld(t)
	small(t, w.journal, "96k")
	conf := w.conf("bridge")
	before := look(t, w.dirs()...)
	attached := w.pod()
	w.must("ADD", conf, attached)
	_ = os.WriteFile(w.journal+"/filler", make([]byte, 1<<21), 0o600) // as much as there is room for
	full := look(t, w.dirs()...)
	p := w.pod()
	if o := w.call("ADD", conf, p, fault{}); o.err == nil || !strings.Contains(o.stdout, `"code": 5`) ||
		!strings.Contains(o.stdout, "WEFT_JOURNAL_DIR") {
		t.Errorf("ADD on a full disk: %s", o.stdout)
	}
	same(t, "ADD on a full disk", full, w.dirs()...)
	w.must("DEL", conf, attached)
	if err := os.Remove(w.journal + "/filler"); err != nil {
		t.Fatal(err)
	}
	if o := w.call("GC", gc(conf), nil, fault{}); o.err != nil {
		t.Fatal(o.stdout)
	}
	same(t, "DEL on a full disk, then GC", before, w.dirs()...)
	readOnly(t, w.journal)
	if o := w.call("ADD", conf, p, fault{}); o.err == nil || !strings.Contains(o.stdout, `"code": 5`) {
		t.Errorf("ADD with a read-only journal: %s", o.stdout)
	}
	same(t, "ADD with a read-only journal", before, w.dirs()...)
}
