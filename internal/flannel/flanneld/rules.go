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

// settle is the delay after an external change of the rules, because more changes usually follow. pace limits how often
// external changes cause a check: where kube-proxy writes rules all day, checks are expensive.
const settle, pace = 100 * time.Millisecond, 800 * time.Millisecond

// rules maintains flannel's rules in the configured form, and removes those of the other form.
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

// set sets the node's subnets.
func (r *rules) set(subnets []netip.Prefix) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.subnets, subnets) {
		return
	}
	r.subnets = subnets
	r.wake.Notify()
}

// wanted returns the rules.
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

// run checks the rules until ctx ends: periodically, and when another program deletes any.
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
			err = r.removeStale(ctx)
			cleared = err == nil
		}
		if ctx.Err() != nil {
			return nil
		}
		said = r.logResult(err, said)
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

func (r *rules) logResult(err error, said string) string {
	if err == nil {
		if said != "" {
			r.d.log.Info("daemon repaired the rules")
		}
		r.d.health.clearProblem("rules")
		_ = r.d.cfg.Failpoint.At("rules")
		r.d.mayBeReady()
		return ""
	}
	r.d.health.setProblem("rules", err)
	if err.Error() != said {
		r.d.log.Error("daemon could not apply the rules", "err", err)
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

// removeStale removes flannel's tables and chains of the other form or another configuration.
func (r *rules) removeStale(ctx context.Context) error {
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

// clearChain deletes one chain with every variant of iptables on the host: the plain name may have meant another
// variant when flannel created it. The variant in use keeps a wanted chain.
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
		return nil // there are no tables
	}
	errs := []error{plain.Delete(ctx, t, choose)}
	if _, err := iptables.Find("", t.Program()+"-legacy-restore"); err == nil && slices.Contains(legacy, t.Table) {
		errs = append(errs, conn.Of(iptables.Legacy).Delete(ctx, t, choose))
	}
	return errors.Join(errs...)
}

// exceptions reads ip-masq-agent's configuration, and returns when to read it again. An invalid or unreadable file
// changes nothing.
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
		r.d.log.Warn("daemon could not read --ip-masq-config; the last valid configuration stays in force", "path", r.d.cfg.MasqConfig, "err", err)
		return time.Minute
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := m.Except(); first || !slices.Equal(now, r.except) {
		r.except = now
	}
	return m.Resync
}
