// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/ipam/blockreport"
	"github.com/weft-net/weft/internal/ipam/hostlocal"
	"github.com/weft-net/weft/internal/ipam/inuse"
	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
)

const (
	// agentURL is the agent's address in the manifests.
	agentURL     = "http://127.0.0.1:9119"
	agentTimeout = 5 * time.Second
	// settleTime is the age after which the cluster must know the pod of an attachment.
	settleTime = 5 * time.Minute
	// leakTime is how long host-local must have had an address without an attachment before --fix releases it: an ADD
	// that has reserved one records it at once.
	leakTime = 5 * time.Second
)

// leaksOf is nodeState for --fix. host-local's addresses without an attachment are read twice, with a pause.
func leaksOf(ctx context.Context, url string) (audit.NodeState, error) {
	first, err := nodeState(ctx, url)
	if err != nil || len(first.HostLocal) == 0 {
		return first, err
	}
	select {
	case <-ctx.Done():
		return first, ctx.Err()
	case <-time.After(leakTime):
	}
	l, err := nodeState(ctx, url)
	l.HostLocal = audit.InBoth(first.HostLocal, l.HostLocal)
	return l, err
}

// freeHostLocal removes an entry of host-local.
func freeHostLocal(ctx context.Context, dir string, e audit.HostLocalEntry) error {
	return hostlocal.New(hostlocal.Config{}).Free(ctx, dir,
		hostlocal.Entry{Addr: e.Addr, ContainerID: e.ContainerID, IfName: e.IfName})
}

// linkMarks returns the aliases of this namespace's interfaces, in which the agent marks the attachment they belong to.
func linkMarks(ctx context.Context) ([]string, error) {
	host, err := kernel.Dial(nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = host.Close() }()
	links, err := host.Links(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, l := range links {
		if l.Alias != "" {
			out = append(out, l.Alias)
		}
	}
	return out, nil
}

// nodeState collects this node's state: the agent's allocations and ledger, and the addresses in the kernel.
func nodeState(ctx context.Context, url string) (audit.NodeState, error) {
	var l audit.NodeState
	var before, after audit.Allocations
	if err := getFromAgent(ctx, url+"/addresses", &before); err != nil {
		return l, err
	}
	var records []struct {
		model.AttachmentKey
		Stage  string
		Since  time.Time
		Pod    string
		Netns  string
		Result *model.Result
		Filed  string
	}
	if err := getFromAgent(ctx, url+"/attachments", &records); err != nil {
		return l, err
	}
	paths := map[string]bool{}
	for _, r := range records {
		one := audit.LedgerEntry{
			AttachmentKey: r.AttachmentKey, Done: r.Stage == "done", Old: time.Since(r.Since) > settleTime, Pod: r.Pod,
			Netns: r.Netns, HostLocalDir: r.Filed,
		}
		if r.Result != nil {
			for _, ip := range r.Result.IPs {
				one.Addrs = append(one.Addrs, ip.Address.Addr())
			}
		}
		l.Ledger = append(l.Ledger, one)
		paths[r.Netns] = true
	}
	var err error
	if l.Kernel, l.Gone, err = inuse.Read(paths); err != nil {
		return l, fmt.Errorf("namespaces of pods: %w", err)
	}
	if l.Marks, err = linkMarks(ctx); err != nil {
		return l, fmt.Errorf("interfaces of this node: %w", err)
	}
	l.Free = freeHostLocal
	// Allocations may change meanwhile: only what both reads have can be a finding.
	if err := getFromAgent(ctx, url+"/addresses", &after); err != nil {
		return l, err
	}
	l.Allocations = before
	l.HostLocal = audit.InBoth(before.HostLocal, after.HostLocal)
	l.Held = slices.DeleteFunc(before.Held, func(h blockreport.HeldAddress) bool { return !slices.Contains(after.Held, h) })
	return l, nil
}

func getFromAgent(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ui.UsageError(fmt.Errorf("agent %q: %w", url, err))
	}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // without a proxy
	answer, err := direct.Do(r)
	if err != nil {
		return model.Errorf(model.CodeNotAvailable, "check that the agent runs and that metrics.address is set", "%w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(answer.Body, 64<<20))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, b[:min(len(b), 200)])
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}
