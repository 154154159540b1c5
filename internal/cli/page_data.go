// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weft-net/weft/internal/calico"
	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam/audit"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/explainer"
	"github.com/weft-net/weft/internal/node/nodestatus"
	"github.com/weft-net/weft/internal/node/policy"
	"github.com/weft-net/weft/internal/plan/explain"
	"github.com/weft-net/weft/internal/plan/policy/reach"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
	"github.com/weft-net/weft/internal/web/view"
)

// Limits of the page's questions.
const (
	statusAge = 10 * time.Second // of the status by which the map colors nodes
	zoneLabel = "topology.kubernetes.io/zone"
	// vmsRoute is the agents' route of VMs whose addresses outlive a pod.
	vmsRoute = "/move/machines" // glossary: the route's name
)

// pageData asks the agents and the datastore for the page.
type pageData struct {
	source *agents.Source
	flows  *pageFlows
	facts  pageFacts

	mu     sync.Mutex
	status nodestatus.Cluster
	at     time.Time // of status
	denied view.DeniedLog
	// names are those of pods and nodes, read at namesAt.
	names   []string
	namesAt time.Time
}

// askAll asks all agents at the same time. silent has the errors of those that did not answer, by node.
func askAll[T any](ctx context.Context, c agents.Cluster, q adminapi.Request) (answers map[string]T, silent map[string]string) {
	answers = map[string]T{}
	silent = askEach(ctx, c, func(node string) (adminapi.Request, func(T)) {
		return q, func(v T) { answers[node] = v }
	})
	return answers, silent
}

// askEach asks all agents at the same time, each with a request of its own. Answers are taken one at a time.
func askEach[T any](
	ctx context.Context, c agents.Cluster, request func(node string) (q adminapi.Request, take func(T)),
) (silent map[string]string) {
	var mu sync.Mutex
	silent = map[string]string{}
	var group errgroup.Group
	group.SetLimit(maxAsking)
	for _, a := range c.Agents {
		group.Go(func() error {
			var v T
			q, take := request(a.Node)
			q.Timeout = askTimeout
			err := a.Do(ctx, q, &v)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent[a.Node] = err.Error()
			} else {
				take(v)
			}
			return nil
		})
	}
	_ = group.Wait() // errors are in silent
	return silent
}

// unanswered returns an error if no agent answered.
func unanswered(answers int, silent map[string]string) error {
	if answers > 0 || len(silent) == 0 {
		return nil
	}
	first := slices.Sorted(maps.Keys(silent))[0]
	return model.Errorf(model.CodeNotAvailable, "see whether the agents run", "no agent answers: %s", silent[first])
}

func (d *pageData) health(ctx context.Context, _ url.Values) (any, error) {
	s, err := openStatus(ctx, d.source)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	now := time.Now()
	d.status, d.at = s, now
	d.denied.Add(s, now)
	denied := d.denied.Rates(now)
	d.mu.Unlock()
	return view.NewHealth(s, denied), nil
}

// levels returns the nodes' levels, of a status that is not old.
func (d *pageData) levels(ctx context.Context, c agents.Cluster) map[string]string {
	d.mu.Lock()
	s, old := d.status, time.Since(d.at) > statusAge
	d.mu.Unlock()
	if old {
		next, err := askStatus(ctx, c)
		if err != nil {
			return view.NodeLevels(s)
		}
		s = next
		d.mu.Lock()
		d.status, d.at = s, time.Now()
		d.mu.Unlock()
	}
	return view.NodeLevels(s)
}

func (d *pageData) nodes(ctx context.Context, q url.Values) (any, error) {
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	zones, err := zonesOf(ctx, c)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range c.Agents {
		names = append(names, a.Node)
	}
	linked := view.Linked(names, zones, q.Get("focus"))
	facts, silent := d.facts.ask(ctx, c, linked)
	if err := unanswered(len(facts), silent); err != nil {
		return nil, err
	}
	columns, _ := strconv.Atoi(q.Get("columns"))
	var pairs []view.Pair
	if q.Get("traffic") != "" {
		pairs = d.flows.pairs()
	}
	return view.NewMap(view.MapInput{
		Nodes: byName(facts), Silent: silent, Levels: d.levels(ctx, c), Zones: zones,
		Focus: q.Get("focus"), Find: q.Get("find"), Pairs: pairs, Columns: columns,
	}), nil
}

// factsRequest asks for the facts about a node. A summary is without the other nodes, of which there may be many.
func factsRequest(summary bool) adminapi.Request {
	q := adminapi.Request{Method: http.MethodGet, Path: explainer.RouteFacts}
	if summary {
		q.Query = url.Values{explainer.QuerySummary: {"true"}}
	}
	return q
}

// byName returns facts by the names that the agents have: an agent of --state-dir is not known by one.
func byName(facts map[string]explain.Node) map[string]explain.Node {
	out := map[string]explain.Node{}
	for node, f := range facts {
		out[cmp.Or(f.Name, node)] = f
	}
	return out
}

func zonesOf(ctx context.Context, c agents.Cluster) (map[string]string, error) {
	out := map[string]string{}
	if c.Objects == nil {
		return out, nil
	}
	err := store.Each(ctx, c.Objects, store.Nodes(), func(o store.Object) {
		if n, err := o.Node(); err == nil {
			out[n.Name] = n.Labels[zoneLabel]
		}
	})
	return out, ignoreMissing(err)
}

// ignoreMissing returns nil if the datastore does not have the kind.
func ignoreMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// errNoDatastore is why a view is empty with --state-dir.
func errNoDatastore(what string) error {
	return model.Errorf(model.CodeNotAvailable, "name the cluster with --kubeconfig, or the lab with --dir, instead of --state-dir",
		"%s are objects of the cluster, of which only one agent is known", what)
}

func podsOf(ctx context.Context, objects store.Objects) ([]model.Pod, error) {
	var out []model.Pod
	err := store.Each(ctx, objects, store.Pods(), func(o store.Object) {
		if p, err := o.Pod(); err == nil {
			out = append(out, p)
		}
	})
	return out, ignoreMissing(err)
}

// policyObjects reads what policies are about.
func policyObjects(ctx context.Context, c agents.Cluster) (in view.PoliciesInput, err error) {
	if c.Objects == nil {
		return in, errNoDatastore("policies")
	}
	seen := map[model.PolicyKey]bool{} // two API groups can have the same policy of Calico's
	for _, kind := range calico.AllPolicyKinds() {
		err := store.Each(ctx, c.Objects, kind, func(o store.Object) {
			p, err := calico.AnyPolicy(o)
			switch {
			case seen[p.PolicyKey] || calico.Derived(o.Key):
			case err != nil:
				in.Invalid = append(in.Invalid, view.Row{Name: o.Key.String(), Text: err.Error()})
			default:
				in.Policies = append(in.Policies, p)
			}
			seen[p.PolicyKey] = true
		})
		if ignoreMissing(err) != nil {
			return in, err
		}
	}
	err = store.Each(ctx, c.Objects, store.Namespaces(), func(o store.Object) {
		if n, err := o.Namespace(); err == nil {
			in.Namespaces = append(in.Namespaces, n)
		}
	})
	if ignoreMissing(err) != nil {
		return in, err
	}
	if in.Pods, err = podsOf(ctx, c.Objects); err != nil {
		return in, err
	}
	var published []model.WorkloadEndpoint
	err = store.Each(ctx, c.Objects, store.NodeEndpoints(), func(o store.Object) {
		if all, err := o.NodeEndpoints(); err == nil {
			published = append(published, all...)
		}
	})
	in.Endpoints = view.Endpoints(in.Pods, published)
	return in, ignoreMissing(err)
}

func (d *pageData) policies(ctx context.Context, _ url.Values) (any, error) {
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	in, err := policyObjects(ctx, c)
	if err != nil {
		return nil, err
	}
	summaries, silent := askAll[policy.Summary](ctx, c, policy.NewRequest("summary", nil))
	in.Silent = silent
	for _, node := range slices.Sorted(maps.Keys(summaries)) {
		in.Summaries = append(in.Summaries, summaries[node])
	}
	return view.NewPolicies(in), nil
}

// matrix computes which pods policies allow to connect to which.
func (d *pageData) matrix(ctx context.Context, q url.Values) (any, error) {
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	in, err := policyObjects(ctx, c)
	if err != nil {
		return nil, err
	}
	known := reach.Input{Policies: in.Policies, Pods: in.Pods, Namespaces: in.Namespaces}
	invalid, err := calico.Fill(ctx, c.Objects, in.Policies, &known)
	if err != nil {
		return nil, err
	}
	known.Network, known.Endpoints = q.Get("network"), in.Endpoints
	m := view.NewMatrix(known, q.Get("from"), q.Get("to"), q.Get("find"))
	for _, i := range invalid {
		m.Invalid = append(m.Invalid, i.Error())
	}
	return m, nil
}

func (d *pageData) addresses(ctx context.Context, q url.Values) (any, error) {
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	if c.Objects == nil {
		return nil, errNoDatastore("pools")
	}
	report, err := audit.Inspect(ctx, c.Objects)
	if err != nil {
		return nil, err
	}
	pods, err := podsOf(ctx, c.Objects)
	if err != nil {
		return nil, err
	}
	return view.NewAddresses(report, pods, q.Get("find")), nil
}

// vmAttachment is a row of the agents' route vmsRoute.
type vmAttachment struct {
	VM    model.VMRef `json:"machine"`
	Pod   string      `json:"pod"`
	State string      `json:"state"`
}

func (d *pageData) vms(ctx context.Context, _ url.Values) (any, error) {
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	facts, silent := d.facts.ask(ctx, c, nil)
	if err := unanswered(len(facts), silent); err != nil {
		return nil, err
	}
	in := view.VMsInput{Facts: facts, Silent: silent, Bindings: map[string][]view.VMBinding{}, States: map[string][]view.VMState{}}
	// An agent without VMs or without pools does not have the next two routes.
	records, _ := askAll[[]phase1.Record](ctx, c, adminapi.Request{
		Method: http.MethodPost, Path: host.RouteList, Body: host.Request{},
	})
	for node, list := range records {
		for _, r := range list {
			for _, n := range r.Networks {
				in.Bindings[node] = append(in.Bindings[node], view.VMBinding{
					VM: r.VM, Interface: n.PodLink, Network: n.Interface.Network.Name, Binding: string(n.Interface.Binding),
				})
			}
		}
	}
	kept, _ := askAll[[]vmAttachment](ctx, c, adminapi.Request{Method: http.MethodGet, Path: vmsRoute})
	for node, list := range kept {
		for _, a := range list {
			in.States[node] = append(in.States[node], view.VMState{
				VM: a.VM.String(), Pod: a.VM.Namespace + "/" + a.Pod, State: a.State,
			})
		}
	}
	if in.Migrations, err = migrationsOf(ctx, c); err != nil {
		return nil, err
	}
	return view.NewVMs(in), nil
}

func migrationsOf(ctx context.Context, c agents.Cluster) (out []view.Migration, err error) {
	if c.Objects == nil {
		return nil, nil
	}
	err = store.Each(ctx, c.Objects, store.AddressMoves(), func(o store.Object) {
		if m, err := o.AddressMove(); err == nil {
			out = append(out, view.Migration{
				VM: m.Namespace + "/" + m.VM, Source: m.Source, Target: m.Target, Departed: m.Departed,
			})
		}
	})
	return out, ignoreMissing(err)
}

// ends lists what a connection may begin or end at and has a part of a name, for the page's completion.
func (d *pageData) ends(ctx context.Context, q url.Values) (any, error) {
	const most = 50
	all, err := d.podsAndNodes(ctx)
	find := strings.ToLower(strings.TrimSpace(q.Get("find")))
	found := []string{}
	for _, name := range all {
		if len(found) < most && strings.Contains(strings.ToLower(name), find) {
			found = append(found, name)
		}
	}
	return found, err
}

// podsAndNodes returns their names, which are not read with each letter that is typed.
func (d *pageData) podsAndNodes(ctx context.Context) ([]string, error) {
	d.mu.Lock()
	names, old := d.names, time.Since(d.namesAt) > endsInterval
	d.mu.Unlock()
	if !old {
		return names, nil
	}
	names, err := d.source.PodsAndNodes(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.names, d.namesAt = names, time.Now()
	return names, nil
}

func (d *pageData) why(ctx context.Context, form url.Values) (any, error) {
	_, q, err := d.connection(form)
	if err != nil {
		return nil, err
	}
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	x := newExplanation(c)
	reports, err := x.explain(ctx, q)
	if err != nil {
		return nil, err
	}
	silent := []string{}
	for _, err := range x.silent {
		silent = append(silent, err.Error())
	}
	return view.NewWhy(reports, silent), nil
}

func (d *pageData) trace(ctx context.Context, form url.Values) (any, error) {
	f, q, err := d.connection(form)
	if err != nil {
		return nil, err
	}
	if err := traceable(q); err != nil {
		return nil, err
	}
	c, err := d.source.Open(ctx)
	if err != nil {
		return nil, err
	}
	f.six = form.Get("ipv6") != ""
	report, err := f.trace(ctx, newExplanation(c), q)
	if err != nil {
		return nil, err
	}
	return view.NewTrace(report), nil
}
