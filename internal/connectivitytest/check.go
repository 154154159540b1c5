// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/connectivitytest/probe"
	"github.com/weft-net/weft/internal/model"
)

// Limits of checks.
const (
	answerTime   = 2 * time.Second
	silenceTime  = 600 * time.Millisecond // with which silence is noticed: twice the repetition of a probe
	execTimeout  = time.Minute
	maxDiagnoses = 3 // of a test
)

// check is a probe and what is expected.
type check struct {
	name  string
	from  string // pod of the test
	probe probe.Probe
	deny  bool
	// server is the name that the answer must have, or empty.
	server string
	// about is the connection that a failure is explained with; without From it is not.
	about Question
}

// recorder collects the results of a test.
type recorder struct {
	s         *Suite
	result    TestResult
	diagnosed int
}

// skip records why a part of the test is not run.
func (r *recorder) skip(format string, args ...any) {
	r.result.Skipped = append(r.result.Skipped, fmt.Sprintf(format, args...))
}

// expect runs checks until all are as expected, and then those that expect silence again.
func (r *recorder) expect(ctx context.Context, checks ...check) {
	r.expectWithin(ctx, r.s.Wait, checks...)
}

// expectWithin is expect with another time to try again.
func (r *recorder) expectWithin(ctx context.Context, wait time.Duration, checks ...check) {
	rows := make([]Row, len(checks))
	wrong := make([]int, 0, len(checks))
	var silent []int
	for i, c := range checks {
		rows[i].Name = c.name
		wrong = append(wrong, i)
		if c.deny {
			silent = append(silent, i)
		}
	}
	for end := time.Now().Add(wait); ; {
		wrong = r.attempt(ctx, checks, rows, wrong)
		if len(wrong) == 0 || time.Now().After(end) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
	if len(wrong) == 0 && len(silent) > 0 {
		wrong = r.attempt(ctx, checks, rows, silent)
	}
	for _, i := range wrong {
		if r.diagnosed < maxDiagnoses && checks[i].about.From != "" && ctx.Err() == nil {
			r.diagnosed++
			about := checks[i].about
			about.Size = rows[i].Result.MTU
			rows[i].Diagnosis = r.s.diagnose(ctx, about)
		}
	}
	r.result.Rows = append(r.result.Rows, rows...)
}

// diagnose explains one connection at a time: a node traces only one.
func (s *Suite) diagnose(ctx context.Context, q Question) []string {
	s.diagnosing.Lock()
	defer s.diagnosing.Unlock()
	return s.cluster.Diagnose(ctx, q)
}

// attempt runs some of the checks, those of each pod at the same time, and returns those that are not as expected.
func (r *recorder) attempt(ctx context.Context, checks []check, rows []Row, which []int) (wrong []int) {
	byPod := map[string][]int{}
	for _, i := range which {
		byPod[checks[i].from] = append(byPod[checks[i].from], i)
	}
	var wg sync.WaitGroup
	for pod, list := range byPod {
		wg.Go(func() {
			var probes []probe.Probe
			for _, i := range list {
				probes = append(probes, checks[i].probe)
			}
			results, err := r.s.execProbes(ctx, pod, probes)
			for n, i := range list {
				rows[i].Attempts++
				rows[i].Result = probe.Result{}
				if err == nil {
					rows[i].Result = results[n]
				}
				rows[i].Error = checks[i].verdict(rows[i].Result, err)
				rows[i].OK = rows[i].Error == ""
			}
		})
	}
	wg.Wait()
	for _, i := range which {
		if !rows[i].OK {
			wrong = append(wrong, i)
		}
	}
	return wrong
}

// verdict returns what is wrong with a result, or "".
func (c check) verdict(r probe.Result, err error) string {
	switch {
	case err != nil:
		return "the probe was not run: " + err.Error()
	case c.deny && r.State == probe.Answered:
		return "it was answered, but must not be"
	case c.deny && r.State == probe.Silent:
		return ""
	case r.State != probe.Answered:
		return r.Error
	case c.server != "" && r.Server != c.server:
		return fmt.Sprintf("the answer is of %s, not of %s", r.Server, c.server)
	}
	return ""
}

// execProbes runs probes in a pod.
func (f *fixture) execProbes(ctx context.Context, pod string, probes []probe.Probe) ([]probe.Result, error) {
	text, err := json.Marshal(probes)
	if err != nil {
		return nil, err
	}
	limit := execTimeout
	for _, p := range probes {
		limit = max(limit, execTimeout+time.Duration(p.Millis)*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	namespace, name, _ := strings.Cut(f.full(pod), "/")
	out, err := f.cluster.Exec(ctx, namespace, name, "connectivity-test", "probe", string(text))
	if err != nil {
		return nil, err
	}
	var results []probe.Result
	if err := json.Unmarshal(out, &results); err != nil {
		return nil, fmt.Errorf("results of probes in %s: %w: %.100q", pod, err, out)
	}
	if len(results) != len(probes) {
		return nil, fmt.Errorf("results of probes in %s: %d for %d probes", pod, len(results), len(probes))
	}
	return results, nil
}

// target is a destination of checks.
type target struct {
	label   string // in names of checks
	explain string // for explain: a pod, node or address
	addrs   []netip.Addr
	port    uint16
	server  string
}

// podTarget is a pod of the test.
func (f *fixture) podTarget(name string) target {
	_, server, _ := strings.Cut(f.full(name), "/")
	return target{label: name, explain: f.full(name), addrs: f.addrs(name), port: serverPort, server: server}
}

// checks returns a check for each kind and family.
func (f *fixture) checks(from string, to target, deny bool, kinds ...probe.Kind) []check {
	var out []check
	for _, addr := range to.addrs {
		if !f.hasFamily(from, addr) {
			continue
		}
		family := "IPv4"
		if addr.Is6() {
			family = "IPv6"
		}
		for _, kind := range kinds {
			c := check{
				name: fmt.Sprintf("%s to %s, %s, %s", f.label(from), f.label(to.label), kind, family), from: from, deny: deny,
				probe: probe.Probe{
					Kind:   kind,
					To:     net.JoinHostPort(addr.String(), strconv.Itoa(int(to.port))),
					Millis: int(answerTime.Milliseconds()),
				},
				about: Question{From: f.full(from), To: to.explain, IPv6: addr.Is6(), Port: to.port, Protocol: model.TCP},
			}
			if deny {
				c.probe.Millis = int(silenceTime.Milliseconds())
			}
			switch kind {
			case probe.TCP:
				c.server = to.server
			case probe.UDP:
				c.server, c.about.Protocol = to.server, model.UDP
			case probe.ICMP, probe.MTU:
				c.probe.To, c.about.Protocol, c.about.Port = addr.String(), "", 0
			case probe.Transfer:
				c.probe.Size, c.probe.Millis = 1<<20, 10_000
			case probe.Fragments:
				c.probe.Size, c.about.Protocol = 8000, model.UDP
			}
			if kind == probe.MTU {
				c.probe.Millis = 3 * int(answerTime.Milliseconds())
			}
			out = append(out, c)
		}
	}
	return out
}

// label shortens the name of a pod; those of the namespace of policies are the same in all checks there.
func (f *fixture) label(pod string) string {
	return strings.TrimPrefix(strings.TrimPrefix(pod, f.namespace+policySuffix+"/"), f.namespace+"/")
}

// hasFamily reports whether a pod has an address of the family.
func (f *fixture) hasFamily(pod string, as netip.Addr) bool {
	for _, a := range f.addrs(pod) {
		if a.Is6() == as.Is6() {
			return true
		}
	}
	return false
}
