// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/node/policy"
)

// partly is a store whose server has not all kinds.
type partly struct {
	store.Objects
	mu  sync.Mutex
	has map[string]error // by group: the answer; missing: the kind is there
}

var errAbsent = errors.New("absent")

func (p *partly) Has(_ context.Context, kind store.Kind) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch err := p.has[kind.Group]; {
	case errors.Is(err, errAbsent):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

func (p *partly) answer(group string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.has[group] = err
}

// TestCalicoAbsent: without Calico's kinds pods start, also while its API server does not answer, whose own pods may be
// among them. As long as it is not known whether there are stored policies none does. Kinds that come later are followed.
func TestCalicoAbsent(t *testing.T) {
	w := newWorld(t)
	w.manifest("deny", "apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: deny}\nspec: {types: [Ingress]}\n")
	source := &partly{Objects: w.store.Objects(), has: map[string]error{
		"crd.projectcalico.org": errors.New("the server is starting"), "projectcalico.org": errors.New("service unavailable"),
	}}
	w.start(func(c *policy.Config) { c.Source = source })
	ctx, cancel := context.WithCancel(t.Context())
	w.object("shop/early", "app: web", "n1")
	admitted := make(chan error, 1)
	go func() { admitted <- w.Admit(ctx, w.guarded("shop/early")) }()
	w.eventually("the kinds are looked for", func() bool { return strings.Contains(w.log.String(), "the server is starting") })
	select {
	case err := <-admitted:
		t.Errorf("a pod is admitted before it is known whether there are policies: %v", err)
	default:
	}
	cancel()
	<-admitted
	source.answer("crd.projectcalico.org", errAbsent)
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.eventually("pods start without the kinds", func() bool { return reaches(other.ns, web, 80) })
	source.answer("crd.projectcalico.org", nil)
	w.eventually("kinds that come later are followed", func() bool { return !reaches(other.ns, web, 80) })
}
