// SPDX-License-Identifier: Apache-2.0

package flanneld

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weft-net/weft/internal/flannel"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/kernel/iptables"
	"github.com/weft-net/weft/internal/kernel/watch"
	"github.com/weft-net/weft/internal/notify"
	"github.com/weft-net/weft/internal/state"
)

// settle is how long the rules wait after a sign that somebody has changed them: who does, does more. pace is how often
// such signs may have them looked at: where kube-proxy writes rules all day, looking costs as much.
const settle, pace = 100 * time.Millisecond, 800 * time.Millisecond

// rules keeps flannel's rules: in the form that is configured, and nothing of the other form.
type rules struct {
	d    *daemon
	wake notify.Chan

	mu      sync.Mutex
	subnets []netip.Prefix
	except  []netip.Prefix
}

func newRules(d *daemon, subnets []netip.Prefix) *rules {
	return &rules{d: d, wake: notify.New(), subnets: subnets}
}

// set says what the node's subnets are by now.
func (r *rules) set(subnets []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.subnets, subnets) {
		return
	}
	r.subnets = subnets
	r.wake.Notify()
}

// wanted are the rules.
func (r *rules) wanted() flannel.Rules {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.d.cfg.Options
	w := flannel.Rules{Masquerade: o.IPMasq, Random: !o.NoRandomFully, Forward: o.ForwardRules, Except: r.except}
	for _, network := range r.d.conf.Networks() {
		i := slices.IndexFunc(r.subnets, func(p netip.Prefix) bool { return p.Addr().Is4() == network.Addr().Is4() })
		if i >= 0 {
			w.Networks, w.Subnets = append(w.Networks, network), append(w.Subnets, r.subnets[i].Masked())
		}
	}
	return w
}

// run looks at the rules until ctx ends: now and then, and when somebody deletes any.
func (r *rules) run(ctx context.Context) error {
	signs, err := watch.TablesGone(ctx, r.d.cfg.NS)
	if err != nil {
		return err
	}
	said, cleared := "", false
	var readAgain <-chan time.Time
	period := time.Duration(r.d.cfg.Resync) * time.Second
	for first := true; ; first = false {
		if r.d.cfg.MasqConfig != "" && readAgain == nil {
			readAgain = r.d.cfg.After(r.exceptions(first))
		}
		err := r.apply(ctx)
		last := r.d.cfg.Now()
		if err == nil && !cleared {
			err = r.clear(ctx)
			cleared = err == nil
		}
		if ctx.Err() != nil {
			return nil
		}
		said = r.tell(err, said)
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		case <-readAgain:
			readAgain = nil
		case <-r.d.cfg.After(period):
		case <-signs:
			select {
			case <-r.d.cfg.After(max(settle, pace-r.d.cfg.Now().Sub(last))):
			case <-ctx.Done():
			}
		}
	}
}

func (r *rules) tell(err error, said string) string {
	if err == nil {
		if said != "" {
			r.d.log.Info("rules are as they should be again")
		}
		r.d.health.well("rules")
		_ = r.d.cfg.Step.At("rules")
		r.d.mayBeReady()
		return ""
	}
	r.d.health.ill("rules", err)
	if err.Error() != said {
		r.d.log.Error("rules are not as they should be", "err", err)
	}
	return err.Error()
}

func (r *rules) apply(ctx context.Context) error {
	f := state.Fragment{Owner: "flanneld/rules"}
	if w := r.wanted(); r.d.conf.EnableNFTables {
		f.Host.Tables = w.NFTables()
	} else {
		f.Host.IPTables = w.IPTables()
	}
	if f.Host.Empty() {
		return nil
	}
	err := kernel.Spaces{Host: r.d.host}.Apply(ctx, f)
	if errors.Is(err, iptables.ErrAbsent) {
		return fmt.Errorf("%w; install iptables, or set EnableNFTables true in net-conf.json", err)
	}
	return err
}

// clear takes away what is of another form or another configuration: flannel's tables and chains that nobody wants.
func (r *rules) clear(ctx context.Context) error {
	w := r.wanted()
	var errs []error
	var tables []state.Table
	for _, t := range []state.Table{{Family: "ip", Name: flannel.TableV4}, {Family: "ip6", Name: flannel.TableV6}} {
		wanted := r.d.conf.EnableNFTables && slices.ContainsFunc(w.NFTables(), func(o state.Table) bool {
			return o.Name == t.Name
		})
		if !wanted {
			tables = append(tables, t)
		}
	}
	errs = append(errs, kernel.Spaces{
		Host: r.d.host,
	}.Remove(ctx, state.Fragment{Owner: "flanneld/stale", Host: state.Space{Tables: tables}}))
	for _, v6 := range []bool{false, true} {
		for table, chain := range map[string]string{"nat": flannel.ChainMasq, "filter": flannel.ChainForward} {
			t := state.IPTables{IPv6: v6, Table: table}
			wanted := !r.d.conf.EnableNFTables && slices.ContainsFunc(w.IPTables(), func(o state.IPTables) bool {
				return o.IPv6 == v6 && o.Table == table
			})
			errs = append(errs, r.clearChain(ctx, t, chain, wanted))
		}
	}
	return errors.Join(errs...)
}

// clearChain takes one chain away by every kind of iptables that the host has: the plain name may have meant another
// one when flannel made it. The kind in use keeps a chain that is wanted.
func (r *rules) clearChain(ctx context.Context, t state.IPTables, chain string, wanted bool) error {
	conn := r.d.host.IPTables()
	legacy, err := r.d.host.LegacyTables(t.IPv6)
	if err != nil {
		return err
	}
	choose := func(have *iptables.Table) iptables.Choice {
		if have.Chain(chain) == nil {
			return iptables.Choice{}
		}
		return iptables.Choice{Chains: []string{chain}}
	}
	plain := conn
	if wanted {
		return nil
	}
	if _, err := iptables.Find("", t.Program()+"-restore"); err != nil {
		return nil // nobody has made any
	}
	errs := []error{plain.Take(ctx, t, choose)}
	if _, err := iptables.Find("", t.Program()+"-legacy-restore"); err == nil && slices.Contains(legacy, t.Table) {
		errs = append(errs, conn.Of(iptables.Legacy).Take(ctx, t, choose))
	}
	return errors.Join(errs...)
}

// exceptions reads ip-masq-agent's configuration, and says when to read it again. A file that cannot be read or
// understood changes nothing.
func (r *rules) exceptions(first bool) time.Duration {
	text, err := os.ReadFile(r.d.cfg.MasqConfig)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	var m flannel.MasqAgent
	if err == nil {
		if text, err = yaml.YAMLToJSON(text); err == nil && string(text) == "null" {
			text = nil
		}
	}
	if err == nil {
		m, _, err = flannel.ParseMasqAgent(text)
	}
	if err != nil {
		r.d.log.Warn("--ip-masq-config: what was known stays in force", "path", r.d.cfg.MasqConfig, "err", err)
		return time.Minute
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := m.Except(); first || !slices.Equal(now, r.except) {
		r.except = now
	}
	return m.Resync
}
