// SPDX-License-Identifier: Apache-2.0

// Package grants is the controller's side of what nodes ask for in AddressPoolRequests: a range for a pool, an address
// of another node's block, addresses that a machine's claim is to lose. A node's token cannot write these objects; the
// controller looks whether the request is true, and writes them.
package grants

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/ipam"
	"github.com/weft-net/weft/internal/ipam/claims"
	"github.com/weft-net/weft/internal/model"
)

// What the controller goes by before it grants an address is what the asking node's token cannot write: on which node a
// pod is, which claim and which machine its annotations name, what the machine's instance says, and what the node that
// has the address says of it. A claim's addresses alone are no proof, for agents write them.

const (
	// claimAnnotation names the AddressClaim of a pod, machineAnnotation the virtual machine that runs in it,
	// networksAnnotation the networks with their IPAMClaims, and incomingAnnotation is on a pod into which a machine is to
	// migrate.
	claimAnnotation    = "weft.dev/address-claim"
	machineAnnotation  = "kubevirt.io/domain"
	networksAnnotation = "k8s.v1.cni.cncf.io/networks"
	incomingAnnotation = "kubevirt.io/migrationJobName"
)

// Address lets a node take one address of another's block in the name of a claim, where that is where the claim is
// used. A refusal is an error of code CodeInvalidConf.
func Address(ctx context.Context, objects store.Objects, r model.PoolRequest) error {
	id := r.Claim
	if !r.IPAM {
		id = claims.OfAddressClaim + r.Claim
	}
	refuse := func(format string, args ...any) error {
		return ipam.Invalid("", "address %s for %s: "+format, append([]any{r.Addr, claims.Words(id)}, args...)...)
	}
	kind, key := claims.Place(id)
	claim, err := found(ctx, objects, kind, key)
	if err != nil {
		return err
	}
	if claim.Version == "" || dying(claim) || !slices.Contains(claims.Addresses(claim), r.Addr) {
		return refuse("there is no such claim, or it does not have the address")
	}
	if err := carried(ctx, objects, r, claim, refuse); err != nil {
		return err
	}
	blockKind := store.AddressBlocks()
	const tries = 10
	for range tries {
		o, err := found(ctx, objects, blockKind, blockKind.Key("", store.BlockName(r.Pool, r.CIDR)))
		if err != nil || o.Version == "" {
			return err // without a block the address is free
		}
		b, err := o.AddressBlock()
		if err != nil {
			return err
		}
		entry := r.Node + claims.For + id
		has, err := permitted(ctx, objects, b, claim, r, entry, refuse)
		if has || err != nil {
			return err
		}
		if b.Granted = maps.Clone(b.Granted); b.Granted == nil {
			b.Granted = map[netip.Addr]string{}
		}
		b.Granted[r.Addr] = entry
		next, err := store.AddressBlockObject(o, b)
		if err != nil {
			return err
		}
		_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
			return objects.CompareAndSwap(ctx, blockKind, o.Version, next)
		})
		if err == nil || store.IgnoreConflict(err) != nil {
			return err
		}
	}
	return model.Faultf(model.CodeTryAgain, "", "block %s changes all the time", r.CIDR)
}

// permitted looks whether a node may take a block's address for a claim. It reports true where there is nothing to be
// granted: the node has the address, or was granted it, or it is free for whoever takes it first.
func permitted(ctx context.Context, objects store.Objects, b model.AddressBlock, claim store.Object,
	r model.PoolRequest, entry string, refuse func(string, ...any) error,
) (bool, error) {
	with, ceded := b.Ceded[r.Addr]
	holder := b.Holder(r.Addr)
	switch {
	case holder == r.Node || ceded && with == "" || b.Granted[r.Addr] == entry:
		return true, nil
	case ceded && claims.In(with) == claims.In(entry): // the node that has it says whose it is
		return false, nil
	}
	told, err := toldBy(ctx, objects, holder, claim, r.Addr)
	if err != nil || told {
		return false, err
	}
	return false, refuse("node %q, which has the address, has not said that it is the claim's", holder)
}

// found is an object, without a version where there is none.
func found(ctx context.Context, objects store.Objects, kind store.Kind, key store.Key) (store.Object, error) {
	o, err := store.Bounded(ctx, func(ctx context.Context) (store.Object, error) { return objects.Get(ctx, kind, key) })
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Object{}, nil
	case err != nil:
		return store.Object{}, store.Unreachable(key.String(), err)
	}
	return o, nil
}

// dying reports whether an object is about to go.
func dying(o store.Object) bool {
	var m struct {
		Metadata struct {
			DeletionTimestamp string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	return json.Unmarshal(o.Raw, &m) != nil || m.Metadata.DeletionTimestamp != ""
}

// carried makes sure that the pod of the request is on the node that asks, lives, carries the claim, and is where its
// machine is to be.
func carried(
	ctx context.Context, objects store.Objects, r model.PoolRequest, claim store.Object, refuse func(string, ...any) error,
) error {
	kind := store.Pods()
	ref := claims.IPAMKey(r.Pod)
	o, err := found(ctx, objects, kind, kind.Key(ref.Namespace, ref.Name))
	if err != nil {
		return err
	}
	if o.Version == "" || dying(o) {
		return refuse("there is no pod %s", r.Pod)
	}
	pod, err := o.Pod()
	switch {
	case err != nil:
		return refuse("pod %s: %w", r.Pod, err)
	case pod.Node == "" || pod.Node != r.Node:
		return refuse("pod %s is on node %q, and node %q asks", r.Pod, pod.Node, r.Node)
	case pod.Phase == "Succeeded" || pod.Phase == "Failed":
		return refuse("pod %s is over", r.Pod)
	case pod.Namespace != claim.Key.Namespace || len(carries(pod, claim)) == 0:
		return refuse("pod %s does not carry the claim", r.Pod)
	}
	name := pod.Annotations[machineAnnotation]
	if name == "" {
		return nil
	}
	instances := store.VirtualMachineInstances()
	o, err = found(ctx, objects, instances, instances.Key(pod.Namespace, name))
	if err != nil || o.Version == "" {
		return err // without KubeVirt there is none
	}
	var i machineInstance
	if err := json.Unmarshal(o.Raw, &i); err != nil {
		return refuse("VirtualMachineInstance %s: %w", o.Key, err)
	}
	if !i.runsIn(pod) {
		return refuse("VirtualMachineInstance %s does not say that its machine is to run in pod %s", o.Key, r.Pod)
	}
	return nil
}

// machineInstance is what KubeVirt says of where a machine runs.
type machineInstance struct {
	Status struct {
		NodeName  string `json:"nodeName"`
		Migration *struct {
			TargetPod string `json:"targetPod"`
			SourcePod string `json:"sourcePod"`
			Completed bool   `json:"completed"`
			Failed    bool   `json:"failed"`
		} `json:"migrationState"`
	} `json:"status"`
}

// runsIn reports whether the machine runs in a pod, or may be about to: it is the target of its migration, or the
// source of one that has not come to its end or has failed, or no migration is under way and the machine is on that
// node or on none.
func (i machineInstance) runsIn(pod model.Pod) bool {
	if m := i.Status.Migration; m != nil &&
		(m.TargetPod == pod.Name && !m.Failed || m.SourcePod == pod.Name && (m.Failed || !m.Completed)) {
		return true
	} else if m != nil && !m.Failed && !m.Completed {
		return false
	}
	if i.Status.NodeName == "" {
		return pod.Annotations[incomingAnnotation] == ""
	}
	return i.Status.NodeName == pod.Node
}

// NetworkStatus is the annotation that says which addresses a pod has.
const NetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// carries are the networks of a pod that a claim is for, "*" where it names none; empty: the pod does not carry it. A
// promise to a machine counts by its name, which only that machine's can have: agents write the rest.
func carries(pod model.Pod, claim store.Object) []string {
	if claim.Key.Of(store.AddressClaims()) {
		m, is := claims.PromiseOf(claim)
		vm := model.VMRef{Namespace: pod.Namespace, Name: pod.Annotations[machineAnnotation]}
		if pod.Annotations[claimAnnotation] == claim.Key.Name ||
			is && vm.Name != "" && claim.Key.Name == vm.Promise(m.Network, m.Interface) {
			return []string{"*"}
		}
		return nil
	}
	var named []struct {
		Name, Namespace string
		Claim           string `json:"ipam-claim-reference"`
	}
	if json.Unmarshal([]byte(pod.Annotations[networksAnnotation]), &named) != nil {
		return nil
	}
	var out []string
	for _, n := range named {
		if n.Namespace == "" {
			n.Namespace = pod.Namespace
		}
		if n.Claim == claim.Key.Name {
			out = append(out, n.Namespace+"/"+n.Name)
		}
	}
	return out
}

// toldBy reports whether the node that has an address has said that it is the claim's: it was the last to write the
// claim, which agents do in their own node's name alone, or a pod there carries the claim and says, in its node's
// words, that it has the address for it.
func toldBy(
	ctx context.Context, objects store.Objects, holder string, claim store.Object, a netip.Addr,
) (told bool, err error) {
	if claim.Key.Of(store.AddressClaims()) {
		c, err := claim.AddressClaim()
		said := err == nil && c.Node != "" && c.Node == holder // one that cannot be decoded says nothing
		return said, nil
	}
	err = store.Each(ctx, objects, store.Pods(), func(o store.Object) {
		pod, err := o.Pod()
		if err != nil || pod.Node != holder || pod.Namespace != claim.Key.Namespace {
			return
		}
		var has []struct {
			Name string
			IPs  []string
		}
		if json.Unmarshal([]byte(pod.Annotations[NetworkStatus]), &has) != nil {
			return
		}
		networks := carries(pod, claim)
		for _, n := range has {
			told = told || slices.Contains(networks, n.Name) && slices.Contains(n.IPs, a.String())
		}
	})
	if err != nil {
		return false, store.Unreachable("list of pods", err)
	}
	return told, nil
}

// Revoke takes grants of a block back that their nodes have not used.
func Revoke(
	ctx context.Context, objects store.Objects, o store.Object, b model.AddressBlock, addrs []netip.Addr,
) error {
	b.Granted = maps.Clone(b.Granted)
	for _, a := range addrs {
		delete(b.Granted, a)
	}
	next, err := store.AddressBlockObject(o, b)
	if err != nil {
		return err
	}
	_, err = store.Bounded(ctx, func(ctx context.Context) (store.Object, error) {
		return objects.CompareAndSwap(ctx, store.AddressBlocks(), o.Version, next)
	})
	return err
}
