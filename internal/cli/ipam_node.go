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
	"github.com/weft-net/weft/internal/ipam/blocks"
	"github.com/weft-net/weft/internal/ipam/inuse"
	"github.com/weft-net/weft/internal/model"
)

const (
	// agentURL is where the manifests have the agent answer; agentLimit is how long it may take.
	agentURL   = "http://127.0.0.1:9119"
	agentLimit = 5 * time.Second
	// oldEnough is how old an attachment must be for its pod to be known.
	oldEnough = 5 * time.Minute
)

// here gathers what this node knows: the agent's memory and ledger, and the addresses in the kernel.
func here(ctx context.Context, url string) (audit.Local, error) {
	var l audit.Local
	var before, after audit.Allocations
	if err := askAgent(ctx, url+"/addresses", &before); err != nil {
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
	if err := askAgent(ctx, url+"/attachments", &records); err != nil {
		return l, err
	}
	paths := map[string]bool{}
	for _, r := range records {
		one := audit.Recorded{
			AttachmentKey: r.AttachmentKey, Done: r.Stage == "done", Old: time.Since(r.Since) > oldEnough, Pod: r.Pod,
			Netns: r.Netns, Filed: r.Filed,
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
	// What came or went meanwhile is no finding: both times it must be so.
	if err := askAgent(ctx, url+"/addresses", &after); err != nil {
		return l, err
	}
	l.Allocations = before
	l.Filed = audit.Both(before.Filed, after.Filed)
	l.Held = slices.DeleteFunc(before.Held, func(h blocks.HeldAddress) bool { return !slices.Contains(after.Held, h) })
	return l, nil
}

func askAgent(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, agentLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ui.UsageError(fmt.Errorf("agent %q: %w", url, err))
	}
	direct := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // never by a proxy
	answer, err := direct.Do(r)
	if err != nil {
		return model.Faultf(model.CodeNotAvailable, "does the agent run, with metrics.address set?", "%w", err)
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
