// SPDX-License-Identifier: Apache-2.0

package connectivitytest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/connectivitytest/probe"
)

// migrationTimeout is the time for a live migration by KubeVirt, whose target may be emulated.
const migrationTimeout = 5 * time.Minute

// testMigration migrates VMs: in a lab the first one that runs, in Kubernetes those of the test that KubeVirt can migrate.
func (s *Suite) testMigration(ctx context.Context, r *recorder, others, own []vm) error {
	if !s.Disruptive {
		r.skip("migration: only with --disruptive")
		return nil
	}
	var candidates []vm
	if !s.cluster.Lab() {
		candidates = slices.DeleteFunc(own, func(v vm) bool { return !v.migratable })
	} else {
		// One that the test booted would not be found at its target when it is deleted.
		candidates = slices.DeleteFunc(others, func(v vm) bool { return v.Namespace == s.namespace })
	}
	if len(candidates) == 0 {
		r.skip("migration: no VM was tested that can migrate")
		return nil
	}
	pools, err := s.cluster.Objects().List(ctx, store.AddressPools())
	if err != nil {
		return fmt.Errorf("address pools: %w", err)
	}
	if len(pools) == 0 {
		r.skip("migration: addresses stay on their nodes without pools (network.addresses: pools, weft lab up --addresses pools)")
		return nil
	}
	if s.cluster.Lab() {
		s.migrate(ctx, r, candidates[0], s.cluster.Migrate)
		return nil
	}
	for _, v := range candidates {
		s.migrate(ctx, r, v, func(ctx context.Context, _, _ string) (Migration, error) { return s.migrateByKubeVirt(ctx, v) })
	}
	return nil
}

// migrate live-migrates a VM to another node.
func (s *Suite) migrate(
	ctx context.Context, r *recorder, v vm, do func(ctx context.Context, vm, node string) (Migration, error),
) {
	i := slices.IndexFunc(s.nodes, func(node string) bool { return node != v.Node })
	if i < 0 {
		r.skip("migration: the cluster has one node")
		return
	}
	begun := time.Now()
	m, err := do(ctx, v.name, s.nodes[i])
	row := Row{
		Name:     fmt.Sprintf("VM %s (%s) migrates from %s to %s with a connection", v.name, v.binding, v.Node, s.nodes[i]),
		Attempts: 1, OK: err == nil && m.Resets == 0,
	}
	row.Result.Micros = time.Since(begun).Microseconds()
	switch {
	case err != nil:
		row.Error = err.Error()
	case m.Resets > 0:
		row.Error = fmt.Sprintf("%d resets and lost lines", m.Resets)
	default:
		row.Result.State = probe.Answered
		row.Result.Detail = fmt.Sprintf("%d ms without data", m.Pause.Milliseconds())
	}
	r.result.Rows = append(r.result.Rows, row)
}

// migrateByKubeVirt has KubeVirt migrate a VM of the test to the other node, while a pod has a connection to its guest.
func (s *Suite) migrateByKubeVirt(ctx context.Context, v vm) (Migration, error) {
	ctx, cancel := context.WithTimeout(ctx, migrationTimeout)
	defer cancel()
	to := netip.AddrPortFrom(v.IPs[0], guestPort).String()
	done := make(chan error, 1)
	var lines probe.Result
	go func() {
		var err error
		lines, err = s.execProbe(ctx, probe.Probe{Kind: probe.Lines, To: to, Millis: int(migrationTimeout.Milliseconds())})
		done <- err
	}()
	if _, err := s.execProbe(ctx, probe.Probe{Kind: probe.LinesBegun, To: to, Millis: int(answerTime.Milliseconds()) * 5}); err != nil {
		cancel()
		<-done
		return Migration{}, fmt.Errorf("connection to %s: %w", to, err)
	}
	failed := s.requestMigration(ctx, v)
	_, err := s.execProbe(ctx, probe.Probe{Kind: probe.LinesEnd, To: to, Millis: int(answerTime.Milliseconds())})
	if err != nil {
		err = fmt.Errorf("end of the connection to %s: %w", to, err)
	}
	broken := <-done
	switch {
	case failed != nil:
		return Migration{}, failed
	case broken != nil:
		return Migration{}, fmt.Errorf("connection to %s: %w", to, broken)
	}
	return Migration{Pause: time.Duration(lines.PauseMillis) * time.Millisecond}, err
}

// execProbe runs one probe in the client of the first node.
func (s *Suite) execProbe(ctx context.Context, p probe.Probe) (probe.Result, error) {
	results, err := s.execProbes(ctx, "client-a", []probe.Probe{p})
	if err != nil {
		return probe.Result{}, err
	}
	if results[0].State != probe.Answered {
		return results[0], fmt.Errorf("%s: %s", p.Kind, results[0].Error)
	}
	return results[0], nil
}

// requestMigration creates the object of a migration, and waits until KubeVirt has done it.
func (s *Suite) requestMigration(ctx context.Context, v vm) error {
	kind := store.VirtualMachineInstanceMigrations()
	_, name, _ := strings.Cut(v.name, "/")
	if err := s.create(ctx, kind, map[string]any{
		"apiVersion": kind.Group + "/" + kind.Version, "kind": kind.Kind,
		"metadata": map[string]any{"namespace": v.Namespace, "name": name},
		"spec":     map[string]any{"vmiName": name},
	}); err != nil {
		return err
	}
	var fields struct {
		Status struct {
			Phase          string
			MigrationState struct{ FailureReason string }
		}
	}
	for {
		o, err := s.cluster.Objects().Get(ctx, kind, kind.Key(v.Namespace, name))
		if err == nil {
			err = json.Unmarshal(o.Raw, &fields)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("migration of %s: %w", v.name, err)
		case fields.Status.Phase == "Succeeded":
			return nil
		case fields.Status.Phase == "Failed":
			return fmt.Errorf("migration of %s: KubeVirt: failed: %s", v.name, fields.Status.MigrationState.FailureReason)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("migration of %s: its phase is %q: %w", v.name, fields.Status.Phase, ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}
