// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/nettest"
)

// agent is an agent's process.
type agent struct {
	w    *world
	dir  string
	cmd  *exec.Cmd
	in   *json.Encoder
	pipe io.Closer
	out  *json.Decoder
}

// start starts an agent, which recovers before it responds.
func (w *world) start(dir string) *agent {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentVar+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	a := &agent{w: w, dir: dir, cmd: cmd, in: json.NewEncoder(in), pipe: in, out: json.NewDecoder(out)}
	w.t.Cleanup(a.stop)
	var hello reply
	if err := a.out.Decode(&hello); err != nil || hello.Err != "" {
		w.t.Fatalf("agent: recover: %v %s", err, hello.Err)
	}
	return a
}

// execute sends an order; ok is false if the agent died.
func (a *agent) execute(o order) (reply, bool) {
	a.w.t.Helper()
	o.BinDir = a.w.bin
	var r reply
	if err := a.in.Encode(o); err != nil {
		return r, false
	}
	timer := time.AfterFunc(time.Minute, func() { _ = a.cmd.Process.Kill() })
	defer timer.Stop()
	if err := a.out.Decode(&r); err != nil {
		return r, false
	}
	return r, true
}

func (a *agent) mustExecute(o order) reply {
	a.w.t.Helper()
	r, ok := a.execute(o)
	if !ok || r.Err != "" {
		a.w.t.Fatalf("%s %s: response %v: %s", o.Verb, o.ID, ok, r.Err)
	}
	return r
}

// stop ends the agent as by SIGTERM and waits.
func (a *agent) stop() {
	_ = a.pipe.Close()
	timer := time.AfterFunc(20*time.Second, func() { _ = a.cmd.Process.Kill() })
	defer timer.Stop()
	_ = a.cmd.Wait()
}

// expectEmptyLedger checks that a stopped agent's ledger has no records.
func (a *agent) expectEmptyLedger(what string) {
	a.w.t.Helper()
	l, err := ledger.Open(a.dir)
	if err != nil {
		a.w.t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if list, err := l.List(); err != nil || len(list) != 0 {
		a.w.t.Fatalf("%s: ledger: %d records, %v", what, len(list), err)
	}
}

// lists returns configuration lists: with weft's plugins only, and with foreign plugins in between.
func (w *world) lists() map[string]string {
	inner := func(typ string) string {
		return strings.Replace(w.conf(typ), `"cniVersion":"1.1.0","name":"faulty",`, "", 1)
	}
	mark := fmt.Sprintf(`{"type":%q,"marks":%q}`, marker, w.marks)
	list := func(plugins ...string) string {
		return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"faulty","plugins":[%s]}`, strings.Join(plugins, ","))
	}
	return map[string]string{
		"bridge":              list(inner("bridge")),
		"ptp":                 list(inner("ptp")),
		"bridge, foreign, lo": list(inner("bridge"), mark, `{"type":"loopback"}`),
	}
}

// A restarted agent undoes the operations that a killed one has not finished, whatever the step was.
func TestAgentKilledAtEveryStep(t *testing.T) {
	for name := range newWorld(t).lists() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			conf := w.lists()[name]
			before := takeSnapshot(t, w.dirs()...)
			dir := t.TempDir()
			first := w.pod()
			a := w.start(dir)
			steps := map[string]int{}
			for _, verb := range []string{"ADD", "DEL"} {
				steps[verb] = a.mustExecute(order{Verb: verb, ID: first.id, Netns: first.netns, Conf: conf, How: "count"}).Steps
			}
			a.stop()
			expectSameHost(t, "ADD and DEL", before, w.dirs()...)
			kills, hits := 0, 0
			for verb, n := range steps {
				for k := 1; k <= n; k++ {
					a := w.start(dir)
					p := w.pod()
					o := order{Verb: verb, ID: p.id, Netns: p.netns, Conf: conf}
					if verb == "DEL" {
						add := o
						add.Verb = "ADD"
						a.mustExecute(add)
					}
					o.How, o.At = "kill", k
					kills++
					if _, answered := a.execute(o); !answered {
						hits++
					}
					awaitDeath(t, a)
					if k%2 == 0 {
						w.removeNetns(p)
					}
					what := fmt.Sprintf("%s killed at step %d of %d", verb, k, n)
					a = w.start(dir)
					if verb == "DEL" && k == 1 || verb == "ADD" && k == n {
						// The attachment is complete: nothing has begun, or only the response is missing.
						o.Verb, o.How = "DEL", ""
						a.mustExecute(o)
					}
					a.stop()
					expectSameHost(t, what, before, w.dirs()...)
					a.expectEmptyLedger(what)
					w.removeNetns(p)
				}
			}
			t.Logf("%d steps of ADD, %d of DEL: %d kills, %d before the response", steps["ADD"], steps["DEL"], kills, hits)
			if hits < kills/4 {
				t.Errorf("only %d of %d kills hit a live call", hits, kills)
			}
		})
	}
}

func awaitDeath(t testing.TB, a *agent) {
	t.Helper()
	dead := make(chan struct{})
	go func() { _, _ = a.cmd.Process.Wait(); close(dead) }()
	select {
	case <-dead:
	case <-time.After(time.Minute):
		_ = a.cmd.Process.Kill()
		t.Fatal("the agent was not killed at the step")
	}
}

// If any step of ADD fails, ADD undoes the others.
func TestAgentFailsAtEveryStep(t *testing.T) {
	for name := range newWorld(t).lists() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			conf := w.lists()[name]
			before := takeSnapshot(t, w.dirs()...)
			a := w.start(t.TempDir())
			first := w.pod()
			o := order{Verb: "ADD", ID: first.id, Netns: first.netns, Conf: conf, How: "count"}
			n := a.mustExecute(o).Steps
			o.Verb = "DEL"
			a.mustExecute(o)
			for k := 1; k <= n; k++ {
				p := w.pod()
				r, ok := a.execute(order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf, How: "error", At: k})
				if !ok || !strings.Contains(r.Err, errStep.Error()) {
					t.Fatalf("ADD with an error at step %d of %d: %v %s", k, n, ok, r.Err)
				}
				expectSameHost(t, fmt.Sprintf("ADD failed at step %d of %d", k, n), before, w.dirs()...)
				w.removeNetns(p)
			}
			a.stop()
			a.expectEmptyLedger("after failed ADDs")
		})
	}
}

// An agent that is killed at random moments leaves nothing.
func TestAgentKilledAtRandom(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 30
	}
	w := newWorld(t)
	conf := w.lists()["bridge, foreign, lo"]
	before := takeSnapshot(t, w.dirs()...)
	dir := t.TempDir()
	p := w.pod()
	a := w.start(dir)
	took := map[string]*nettest.Aim{}
	for _, verb := range []string{"ADD", "DEL"} {
		start := time.Now()
		a.mustExecute(order{Verb: verb, ID: p.id, Netns: p.netns, Conf: conf})
		took[verb] = nettest.NewAim(time.Since(start))
	}
	hits := 0
	for i := range kills {
		p := w.pod()
		o := order{Verb: "ADD", ID: p.id, Netns: p.netns, Conf: conf}
		if i%2 == 1 {
			a.mustExecute(o)
			o.Verb = "DEL"
		}
		process := a.cmd.Process
		aim := took[o.Verb]
		time.AfterFunc(aim.Moment(), func() { _ = process.Kill() })
		_, answered := a.execute(o)
		if aim.Record(!answered); !answered {
			hits++
		}
		awaitDeath(t, a)
		if i%4 >= 2 {
			w.removeNetns(p)
		}
		a = w.start(dir)
		o.Verb = "DEL"
		a.mustExecute(o)
		w.removeNetns(p)
		if i%10 == 9 || i == kills-1 {
			a.stop()
			expectSameHost(t, fmt.Sprintf("kill %d", i), before, w.dirs()...)
			a.expectEmptyLedger(fmt.Sprintf("kill %d", i))
			a = w.start(dir)
		}
	}
	t.Logf("%d kills, %d hit a live call", kills, hits)
	if hits < kills/4 {
		t.Errorf("only %d of %d kills hit a live call", hits, kills)
	}
}
