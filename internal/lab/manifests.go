// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/lab/fabric"
	"github.com/weft-net/weft/internal/lab/layout"
	"github.com/weft-net/weft/internal/lab/replicas"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/sandbox/pod"
)

// fillStore creates the lab's store: it copies the manifests, adds nodes, the pods of VMs and namespaces, and schedules
// all pods. It returns the pods, the VMs, and the names of objects that nothing in a lab handles.
func (u Up) fillStore(ctx context.Context, l layout.Layout) (pods []model.Pod, vms []labVM, others []string, err error) {
	d := u.Dir
	if err := os.MkdirAll(d.Store(), 0o755); err != nil {
		return nil, nil, nil, fmt.Errorf("store: %w", err)
	}
	written := map[string]string{}
	if l.Spec.Fabric != "" {
		file := filepath.Join(d.Store(), "fabric.yaml")
		written[file] = file
		if err := os.WriteFile(file, []byte(fabric.NodeManifests(l)), 0o644); err != nil {
			return nil, nil, nil, fmt.Errorf("store: %w", err)
		}
	}
	for _, dir := range u.From {
		if err := d.copyManifests(dir, written); err != nil {
			return nil, nil, nil, err
		}
	}
	s, err := dir.Open(d.Store())
	if err != nil {
		return nil, nil, nil, err
	}
	problems, err := s.Problems()
	if err = errors.Join(append(problems, err)...); err != nil {
		return nil, nil, nil, OriginalPaths(err, written)
	}
	if u.NoVMs {
		err = deleteVMs(ctx, s)
	} else if vms, err = createVMPods(ctx, s); err != nil {
		err = OriginalPaths(err, written)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	objects, err := s.List("")
	if err == nil {
		err = OriginalPaths(controller{s}.replicate(ctx, objects), written)
	}
	if err == nil {
		objects, err = s.List("")
	}
	if err != nil {
		return nil, nil, nil, err
	}
	c, problems := store.Cluster(objects)
	for _, o := range objects {
		problems = append(problems, CheckPolicy(o))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, nil, nil, OriginalPaths(err, written)
	}
	for _, o := range objects {
		if !Handles(o) {
			others = append(others, o.Key.String())
		}
	}
	if pods, err = schedule(c, l, Unschedulable(objects)); err != nil {
		return nil, nil, nil, err
	}
	if err := validatePods(s, pods); err != nil {
		return nil, nil, nil, err
	}
	if err := errors.Join(writeNodes(ctx, s, l), writePools(ctx, s, c, l)); err != nil {
		return nil, nil, nil, err
	}
	for i := range vms {
		vms[i].setNode(pods)
	}
	err = writePods(ctx, s, c, pods)
	pods = slices.DeleteFunc(pods, func(p model.Pod) bool { return p.Node == "" }) // the status says why
	return pods, vms, others, err
}

// Handles reports whether a lab does something with an object.
func Handles(o store.Object) bool { return handled(o) || IsVM(o) || replicas.Is(o) }

// handled reports whether the lab or its agents handle the object. Agents convert Calico's pools and reservations, for
// example.
func handled(o store.Object) bool {
	switch o.Key.Group {
	case "", "networking.k8s.io":
		return slices.Contains([]string{"Node", "Pod", "Namespace", "NetworkPolicy"}, o.Key.Kind)
	case store.Group, "k8s.cni.cncf.io", "policy.networking.k8s.io", "whereabouts.cni.cncf.io":
		return true
	case "crd.projectcalico.org", "projectcalico.org":
		return slices.Contains([]string{"IPPool", "IPReservation", "IPAMConfig", "IPAMConfiguration", "IPAMBlock"},
			o.Key.Kind)
	}
	return false
}

// CheckPolicy returns an error about a NetworkPolicy or MultiNetworkPolicy that an API server refuses. Other kinds of
// policies can be valid and have parts that weft does not enforce.
func CheckPolicy(o store.Object) error {
	if !o.Key.Of(store.NetworkPolicies()) && !o.Key.Of(store.MultiNetworkPolicies()) {
		return nil
	}
	p, err := o.Policy()
	if err == nil && len(p.Errors) > 0 {
		err = model.Errorf(model.CodeInvalidConf, "compare with `kubectl explain "+strings.ToLower(o.Key.Kind)+".spec`",
			"%s: %s", o.Key, strings.Join(p.Errors, "; "))
	}
	return err
}

// copyManifests copies the files of a directory and records the original path of each. It renames a file if another
// directory has one of the same name.
func (d Dir) copyManifests(from string, written map[string]string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return model.Errorf(model.CodeIO, "choose a directory of Kubernetes manifests", "--from %q: %w", from,
			withoutPath(err))
	}
	n := 0
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".yaml" || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			return model.Errorf(model.CodeIO, "make the file readable", "manifest %s: %w",
				filepath.Join(from, e.Name()), withoutPath(err))
		}
		to := filepath.Join(d.Store(), e.Name())
		for written[to] != "" {
			to = strings.TrimSuffix(to, ".yaml") + "-.yaml"
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		written[to] = filepath.Join(from, e.Name())
		n++
	}
	if n == 0 {
		return model.Errorf(model.CodeInvalidConf, "only *.yaml files directly in the directory are read",
			"--from %q contains no manifest", from)
	}
	return nil
}

// OriginalPaths returns an error with the paths of the files from which its paths were copied; written has them by copy.
func OriginalPaths(err error, written map[string]string) error {
	if err == nil {
		return nil
	}
	name := func(s string) string {
		for to, from := range written {
			s = strings.ReplaceAll(s, to, from)
		}
		return s
	}
	var f *model.Error
	if errors.As(err, &f) && len(unwrapAll(err)) == 1 {
		return &model.Error{Code: f.Code, Msg: name(f.Msg), Hint: f.Hint, Err: f.Err}
	}
	return errors.New(name(err.Error()))
}

func unwrapAll(err error) []error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return many.Unwrap()
	}
	return []error{err}
}

// validatePods validates all pods as the sandbox runtime does, before anything is created.
func validatePods(s *dir.Store, pods []model.Pod) error {
	for _, p := range pods {
		o, err := s.Get(store.PodKey(p.Namespace, p.Name))
		if err == nil {
			_, _, err = pod.Parse(o.Raw, "manifest")
		}
		var f *model.Error
		if errors.As(err, &f) {
			name := fmt.Sprintf("pod %s/%s: ", p.Namespace, p.Name)
			msg := strings.TrimPrefix(strings.TrimPrefix(f.Msg, "manifest: document 1: "), name)
			return &model.Error{Code: f.Code, Msg: name + msg, Hint: f.Hint, Err: f}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// schedule assigns a node to each pod: its nodeName, or the schedulable node with the fewest pods. Without one, the pod
// stays without a node.
func schedule(c model.Cluster, l layout.Layout, unschedulable map[string]bool) ([]model.Pod, error) {
	load := map[string]int{}
	var names []string
	for _, n := range l.Nodes {
		load[n.Name] = 0
		names = append(names, n.Name)
	}
	if len(names) > 10 {
		names = []string{names[0], "…", names[len(names)-1]}
	}
	hint := fmt.Sprintf("the lab's nodes are %s; use one of them, or more --nodes", strings.Join(names, ", "))
	for _, n := range c.Nodes {
		if _, ok := load[n.Name]; !ok {
			return nil, model.Errorf(model.CodeInvalidConf, hint, "node %s: metadata.name %q is not a node of this lab",
				n.Name, n.Name)
		}
	}
	pods := slices.Clone(c.Pods)
	for _, p := range pods {
		if _, ok := load[p.Node]; p.Node != "" && !ok {
			return nil, model.Errorf(model.CodeInvalidConf, hint, "pod %s/%s: spec.nodeName %q is not a node of this lab",
				p.Namespace, p.Name, p.Node)
		}
		load[p.Node]++
	}
	for i := range pods {
		if pods[i].Node != "" {
			continue
		}
		best := ""
		for _, n := range l.Nodes {
			if !unschedulable[n.Name] && (best == "" || load[n.Name] < load[best]) {
				best = n.Name
			}
		}
		if best == "" {
			continue
		}
		pods[i].Node = best
		load[best]++
	}
	return pods, nil
}

func writeNodes(ctx context.Context, s *dir.Store, l layout.Layout) error {
	for _, n := range l.Nodes {
		if err := WriteNode(ctx, s, n); err != nil {
			return err
		}
	}
	return nil
}

// WriteNode creates the Node object of a node, or sets the lab's addresses in one that has labels and annotations of a
// manifest.
func WriteNode(ctx context.Context, s *dir.Store, n layout.Node) error {
	o, err := store.NodeObject(model.Node{Name: n.Name, PodCIDRs: n.PodCIDRs, Addrs: n.AllAddrs()})
	if err != nil {
		return err
	}
	if _, err := s.Create(ctx, o); !errors.Is(err, store.ErrExists) {
		return err
	}
	_, err = s.Modify(ctx, o.Key, func(fields map[string]any) error {
		var ours map[string]any
		if err := json.Unmarshal(o.Raw, &ours); err != nil {
			return err
		}
		spec, _ := fields["spec"].(map[string]any)
		fields["spec"], fields["status"] = ours["spec"], ours["status"]
		if unschedulable := spec["unschedulable"]; unschedulable != nil {
			if next, ok := fields["spec"].(map[string]any); ok {
				next["unschedulable"] = unschedulable
			}
		}
		return nil
	})
	return err
}

func writePods(ctx context.Context, s *dir.Store, c model.Cluster, pods []model.Pod) error {
	if err := createNamespaces(ctx, s, c, pods); err != nil {
		return err
	}
	for _, p := range pods {
		if _, err := s.Modify(ctx, store.PodKey(p.Namespace, p.Name), bindPod(p)); err != nil {
			return err
		}
	}
	return nil
}

// createNamespaces creates the namespaces of pods that the cluster does not have.
func createNamespaces(ctx context.Context, s *dir.Store, c model.Cluster, pods []model.Pod) error {
	known := map[string]bool{}
	for _, n := range c.Namespaces {
		known[n.Name] = true
	}
	need := []string{"default"}
	for _, p := range pods {
		need = append(need, p.Namespace)
	}
	for _, name := range need {
		if known[name] {
			continue
		}
		known[name] = true
		o, err := store.NewObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
		if err != nil {
			return err
		}
		if _, err := s.Create(ctx, o); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	return nil
}

// setUID is the edit that writes a pod's UID into a manifest without one.
func setUID(uid string) store.Edit {
	return func(fields map[string]any) error {
		if meta, ok := fields["metadata"].(map[string]any); ok && (meta["uid"] == nil || meta["uid"] == "") {
			meta["uid"] = uid
		}
		return nil
	}
}

// bindPod returns an edit that sets a pod's node and UID, so that all agents and runtimes use the same UID.
func bindPod(p model.Pod) store.Edit {
	return func(fields map[string]any) error {
		meta, _ := fields["metadata"].(map[string]any)
		spec, _ := fields["spec"].(map[string]any)
		if meta == nil || spec == nil {
			return model.Errorf(model.CodeInvalidConf, "a pod has metadata and spec.containers",
				"pod %s/%s: field spec is missing", p.Namespace, p.Name)
		}
		meta["uid"], meta["namespace"] = p.UID, p.Namespace
		if p.Node != "" {
			spec["nodeName"] = p.Node
		}
		return nil
	}
}
