// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/policy"
	compiled "github.com/weft-net/weft/internal/plan/policy"
)

// TestServe: queries return what was written to the kernel: the policies, what they denied, and which rule and element
// decides.
func TestServe(t *testing.T) {
	w := newWorld(t)
	w.start()
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Routes().Under(policy.Prefix).Serve(ctx, socket, slog.New(slog.DiscardHandler)) }()
	var s policy.Summary
	w.eventually("the socket answers", func() bool {
		return policy.Request(ctx, socket, "summary", nil, &s) == nil && s.Known
	})
	if s.Node != "n1" || len(s.Policies) > 0 {
		t.Errorf("%+v", s)
	}
	var all []compiled.Answer
	ask := func(from, to string) error {
		all = nil
		return policy.Request(ctx, socket, "why", url.Values{"from": {from}, "to": {to}, "port": {"80"}, "protocol": {"TCP"}},
			&all)
	}
	if err := ask("shop/a", "shop/b"); err != nil || len(all) != 1 || !all[0].Allowed || all[0].Note == "" {
		t.Errorf("without a policy: %+v %v", all, err)
	}
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.manifest("friends", onlyFriends)
	w.eventually("the policy is known", func() bool { return w.Stats().Policies == 1 })
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	if err := ask("shop/friend", "shop/web"); err != nil || len(all) != 1 || !all[0].Allowed ||
		all[0].Sides[1].Rule != 0 ||
		!strings.Contains(all[0].Sides[1].Element, friend.addr.String()) ||
		!strings.Contains(ruleset(), all[0].Sides[1].Text) {
		t.Errorf("%+v %v", all, err)
	}
	if err := ask(other.addr.String(), "shop/web"); err != nil || len(all) != 1 || all[0].Allowed ||
		all[0].Sides[1].Decided[0].Name != "friends" {
		t.Errorf("%+v %v", all, err)
	}
	var v compiled.View
	if err := policy.Request(ctx, socket, "show", url.Values{"namespace": {"shop"}, "name": {"web"}}, &v); err != nil ||
		!v.Local ||
		!v.Interfaces[0].Ingress.Isolated || v.Interfaces[0].Egress.Isolated || v.Interfaces[0].HostLink != "caliweb" {
		t.Errorf("%+v %v", v, err)
	}
	w.eventually("denied packets are counted", func() bool {
		s = policy.Summary{}
		return !reaches(other.ns, web, 80) && policy.Request(ctx, socket, "summary", nil, &s) == nil &&
			len(s.Policies) == 1 &&
			len(s.Denied) == 1 &&
			s.Denied[0].By == "NetworkPolicy shop/friends ingress" &&
			s.Denied[0].Packets > 0
	})
	var f *model.Error
	if err := ask("shop/nobody", "shop/web"); !errors.As(err, &f) || f.Hint == "" ||
		!strings.Contains(err.Error(), "pod shop/nobody is not known") {
		t.Error(err)
	}
	verdicts, err := policy.RequestVerdicts(ctx, socket, []compiled.Query{
		{
			From:     compiled.ConnectionEnd{Addr: other.addr},
			To:       compiled.ConnectionEnd{Addr: web.addr},
			Protocol: "TCP",
			Port:     80,
		},
		{
			From:     compiled.ConnectionEnd{Addr: friend.addr},
			To:       compiled.ConnectionEnd{Addr: web.addr},
			Protocol: "TCP",
			Port:     80,
		},
	})
	if err != nil || len(verdicts) != 2 || verdicts[0] || !verdicts[1] {
		t.Errorf("verdicts %v, %v; want false and true", verdicts, err)
	}
	if err := ask("nonsense", "shop/web"); !errors.As(err, &f) ||
		!strings.Contains(err.Error(), `"nonsense" is neither a pod nor an address`) {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDeniedPackets: denied packets are logged with the names of the policies.
func TestDeniedPackets(t *testing.T) {
	w := newWorld(t)
	w.start(func(c *policy.Config) { c.LogGroup = 9119 })
	web, other := w.pod("shop/web", "app: web"), w.pod("shop/other", "app: other")
	w.manifest("friends", onlyFriends)
	w.eventually("a denied packet is logged", func() bool {
		return !reaches(other.ns, web, 80) && strings.Contains(w.log.String(), "shop/friends") &&
			strings.Contains(w.log.String(), "tcp "+other.addr.String())
	})
}
