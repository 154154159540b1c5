// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/launch"
)

// interval is the time between two looks at a lab that is to follow a change.
const interval = 100 * time.Millisecond

// await waits until the pods, replicas and VMs of objects run.
func (c Changer) await(ctx context.Context, objects []store.Object) error {
	reader := lab.NewStatusReader(c.Dir)
	return c.Until(ctx, "not running", func() ([]string, error) {
		st, err := reader.Status(ctx)
		if err != nil {
			return nil, err
		}
		all, err := reader.Objects()
		if err != nil {
			return nil, err
		}
		cluster, _ := store.Cluster(slices.DeleteFunc(all, func(o store.Object) bool { return !o.Is("Pod") }))
		var missing []string
		for _, o := range objects {
			if m := pending(o, st, cluster.Pods); m != "" {
				missing = append(missing, m)
			}
		}
		return missing, nil
	})
}

// pending describes what of an object does not run yet, or returns "".
func pending(o store.Object, st lab.Status, pods []model.Pod) string {
	switch {
	case o.Is("Pod"):
		for _, p := range st.Pods {
			if p.Namespace == o.Key.Namespace && p.Name == o.Key.Name {
				if p.Ready || p.State == "Succeeded" || p.State == "Failed" {
					return ""
				}
				return strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", o.Key, p.State, p.Reason), ": ")
			}
		}
		return o.Key.String() + " does not exist any more"
	case replicas.Is(o):
		s, err := replicas.Read(o)
		if err != nil {
			return err.Error()
		}
		owned := 0
		for _, p := range pods {
			if s.Owns(p) {
				owned++
			}
		}
		if ready := s.Ready(pods); ready < s.Replicas || owned > s.Replicas {
			return fmt.Sprintf("%s has %d of %d replicas running, and %d pods", s.Name(), ready, s.Replicas, owned)
		}
	case lab.IsVM(o):
		if !slices.ContainsFunc(st.VMs, func(v launch.Status) bool {
			return v.Key() == o.Key.Namespace+"/"+o.Key.Name && v.Runner.Alive()
		}) {
			return o.Key.String() + " does not run"
		}
	}
	return ""
}

// Until waits until missing returns nothing. what is what the error says of what is missing.
func (c Changer) Until(ctx context.Context, what string, missing func() ([]string, error)) error {
	if c.Wait == 0 {
		return nil
	}
	end, report := time.Now().Add(c.Wait), time.Now().Add(2*time.Second)
	for {
		left, err := missing()
		if err != nil || len(left) == 0 {
			return err
		}
		switch now := time.Now(); {
		case now.After(end):
			return model.Errorf(model.CodeTryAgain,
				fmt.Sprintf("see `weft lab status --dir %[1]s` and %[1]s/nodes/NODE/sandbox.log; repeat the command, or use a longer --wait",
					c.Dir), "after %s %s: %s", c.Wait, what, strings.Join(left, "; "))
		case !report.IsZero() && now.After(report):
			report = time.Time{}
			c.Logf("waiting: %s", left[0])
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped while waiting: %w", context.Cause(ctx))
		case <-time.After(interval):
		}
	}
}

func notFound(k store.Key) error {
	return model.Errorf(model.CodeInvalidConf, "see `weft lab status`, and the manifests in the lab's store", "%s not found", k)
}
