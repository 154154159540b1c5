// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-net/weft/internal/model"
)

// Limits of a run.
const (
	podsTimeout  = 2 * time.Minute
	pollInterval = 200 * time.Millisecond
	cleanTimeout = 2 * time.Minute
)

// Prefix begins the names of the test's namespaces.
const Prefix = "weft-connectivity-"

// policySuffix ends the name of the namespace of policies, in which nothing else runs.
const policySuffix = "-policy"

// NewName returns a name for a run's namespace.
func NewName() string {
	var b [3]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return Prefix + hex.EncodeToString(b[:])
}

// IsName reports whether a namespace may be one of NewName.
func IsName(s string) bool {
	id, ok := strings.CutPrefix(s, Prefix)
	_, err := hex.DecodeString(id)
	return ok && err == nil && len(id) == 6
}

// Suite is a run of the tests.
type Suite struct {
	Options
	*fixture
	chosen []test
	// diagnosing is held while a failure is explained.
	diagnosing sync.Mutex
}

// New returns a run in a namespace of that name. The error is about the options.
func New(c Cluster, namespace string, o Options) (*Suite, error) {
	chosen, err := choose(o.Only)
	if o.Seed == 0 {
		o.Seed = uint64(mathrand.Uint32())
	}
	return &Suite{Options: o, fixture: newFixture(c, namespace), chosen: chosen}, err
}

// Run creates the pods, runs the tests and returns their results. The caller cleans up.
func (s *Suite) Run(ctx context.Context) (Report, error) {
	begun := time.Now()
	if err := s.chooseNodes(ctx); err != nil {
		return Report{}, err
	}
	r := Report{Namespace: s.namespace, Nodes: s.nodes, Tests: make([]TestResult, len(s.chosen))}
	if err := s.setUp(ctx); err != nil {
		return r, err
	}
	s.Logf("%d pods answer on %s after %.0f s", len(s.pods), strings.Join(s.nodes, " and "), time.Since(begun).Seconds())
	var wg sync.WaitGroup
	for i, t := range s.chosen {
		if t.exclusive {
			continue
		}
		wg.Go(func() { r.Tests[i] = s.run(ctx, t) })
	}
	wg.Wait()
	for i, t := range s.chosen {
		if t.exclusive && ctx.Err() == nil {
			r.Tests[i] = s.run(ctx, t)
		}
	}
	r.Millis = time.Since(begun).Milliseconds()
	return r, ctx.Err()
}

// choose returns the tests with the names, or all.
func choose(only []string) ([]test, error) {
	all := tests()
	if len(only) == 0 {
		return all, nil
	}
	var out []test
	for _, name := range only {
		i := slices.IndexFunc(all, func(t test) bool { return t.name == name })
		if i < 0 {
			var names []string
			for _, t := range all {
				names = append(names, t.name)
			}
			return nil, model.Errorf(model.CodeInvalidConf, "the tests are "+strings.Join(names, ", "), "no test %q", name)
		}
		if !slices.ContainsFunc(out, func(t test) bool { return t.name == name }) {
			out = append(out, all[i])
		}
	}
	return out, nil
}
