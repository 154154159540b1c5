// SPDX-License-Identifier: Apache-2.0

// Package grants serves AddressPoolRequests in the controller: a range for a pool, an address of another node's block,
// the removal of addresses from a VM's claim. A node's token cannot write these objects; the controller verifies the
// request, and writes them.
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

// Before it grants an address the controller checks only facts that the requesting node's token cannot write: the pod's
// node, the claim and the VM in its annotations, the VirtualMachineInstance, and what the node that has the address
// reports. The addresses in a claim are no proof, because agents write them.

const (
	// claimAnnotation names the AddressClaim of a pod, vmAnnotation the virtual machine that runs in it,
	// networksAnnotation the networks with their IPAMClaims; incomingAnnotation is on the target pod of a live migration.
	claimAnnotation    = "weft.dev/address-claim"
	vmAnnotation       = "kubevirt.io/domain"
	networksAnnotation = model.NetworksAnnotation
	incomingAnnotation = "kubevirt.io/migrationJobName"
)

// Address grants a node one address of another node's block for a claim, if the claim is used on that node. A refusal
// is an error with CodeInvalidConf.
func Address(ctx context.Context, objects store.Objects, r model.PoolRequest) error {
	id := r.Claim
	if !r.IPAM {
		id = claims.AddressClaimPrefix + r.Claim
	}
	refuse := func(format string, args ...any) error {
		return ipam.Invalid("", "address %s for %s: "+format, append([]any{r.Addr, claims.Describe(id)}, args...)...)
	}
	kind, key := claims.ObjectKey(id)
	claim, err := found(ctx, objects, kind, key)
	if err != nil {
		return err
	}
	if claim.Version == "" || terminating(claim) || !slices.Contains(claims.Addresses(claim), r.Addr) {
		return refuse("there is no such claim, or it does not have the address")
	}
	if err := checkPod(ctx, objects, r, claim, refuse); err != nil {
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
		entry := r.Node + claims.EntrySeparator + id
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
		_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
			return objects.CompareAndSwap(ctx, blockKind, o.Version, next)
		})
		if err == nil || store.IgnoreConflict(err) != nil {
			return err
		}
	}
	return model.Errorf(model.CodeTryAgain, "", "block %s keeps changing", r.CIDR)
}

// permitted checks whether a node may take a block's address for a claim. It returns true if no grant is needed: the
// node has the address or its grant, or the address is lent to any node.
func permitted(ctx context.Context, objects store.Objects, b model.AddressBlock, claim store.Object,
	r model.PoolRequest, entry string, refuse func(string, ...any) error,
) (bool, error) {
	with, lent := b.Lent[r.Addr]
	holder := b.Holder(r.Addr)
	switch {
	case holder == r.Node || lent && with == "" || b.Granted[r.Addr] == entry:
		return true, nil
	case lent && claims.OfEntry(with) == claims.OfEntry(entry): // the node that has it confirms the claim
		return false, nil
	}
	confirmed, err := confirmedBy(ctx, objects, holder, claim, r.Addr)
	if err != nil || confirmed {
		return false, err
	}
	return false, refuse("node %q, which has the address, has not confirmed that it is the claim's", holder)
}

// found returns an object, without a version if it does not exist.
func found(ctx context.Context, objects store.Objects, kind store.Kind, key store.Key) (store.Object, error) {
	o, err := store.WithTimeout(
		ctx,
		func(ctx context.Context) (store.Object, error) { return objects.Get(ctx, kind, key) },
	)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Object{}, nil
	case err != nil:
		return store.Object{}, store.Unreachable(key.String(), err)
	}
	return o, nil
}

// terminating reports whether an object is being deleted.
func terminating(o store.Object) bool {
	var m struct {
		Metadata struct {
			DeletionTimestamp string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	return json.Unmarshal(o.Raw, &m) != nil || m.Metadata.DeletionTimestamp != ""
}

// checkPod checks that the pod of the request runs on the requesting node, uses the claim, and that its VM runs in it
// or migrates to it.
func checkPod(
	ctx context.Context, objects store.Objects, r model.PoolRequest, claim store.Object, refuse func(string, ...any) error,
) error {
	kind := store.Pods()
	ref := claims.IPAMKey(r.Pod)
	o, err := found(ctx, objects, kind, kind.Key(ref.Namespace, ref.Name))
	if err != nil {
		return err
	}
	if o.Version == "" || terminating(o) {
		return refuse("there is no pod %s", r.Pod)
	}
	pod, err := o.Pod()
	switch {
	case err != nil:
		return refuse("pod %s: %w", r.Pod, err)
	case pod.Node == "" || pod.Node != r.Node:
		return refuse("pod %s is on node %q, and the request is node %q's", r.Pod, pod.Node, r.Node)
	case pod.Phase == "Succeeded" || pod.Phase == "Failed":
		return refuse("pod %s has finished", r.Pod)
	case pod.Namespace != claim.Key.Namespace || len(claimNetworks(pod, claim)) == 0:
		return refuse("pod %s does not use the claim", r.Pod)
	}
	name := pod.Annotations[vmAnnotation]
	if name == "" {
		return nil
	}
	instances := store.VirtualMachineInstances()
	o, err = found(ctx, objects, instances, instances.Key(pod.Namespace, name))
	if err != nil || o.Version == "" {
		return err // there is none without KubeVirt
	}
	var i vmInstance
	if err := json.Unmarshal(o.Raw, &i); err != nil {
		return refuse("VirtualMachineInstance %s: %w", o.Key, err)
	}
	if !i.runsIn(pod) {
		return refuse("VirtualMachineInstance %s does not name pod %s as its pod or migration target", o.Key, r.Pod)
	}
	return nil
}

// vmInstance is where KubeVirt runs a VM.
type vmInstance struct {
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

// runsIn reports whether the VM runs in a pod, or may soon: the pod is the target of its migration, or the source of
// one that is pending or has failed, or there is no migration and the VM is on the pod's node or on none.
func (i vmInstance) runsIn(pod model.Pod) bool {
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

// NetworkStatus is the annotation with a pod's addresses.
const NetworkStatus = "k8s.v1.cni.cncf.io/network-status"

// claimNetworks returns the networks of a pod that use a claim, "*" where it names none; empty: the pod does not use
// it. The claim of a VM is identified by its name only: agents write the rest.
func claimNetworks(pod model.Pod, claim store.Object) []string {
	if claim.Key.Of(store.AddressClaims()) {
		m, is := claims.VMClaimOf(claim)
		vm := model.VMRef{Namespace: pod.Namespace, Name: pod.Annotations[vmAnnotation]}
		if pod.Annotations[claimAnnotation] == claim.Key.Name ||
			is && vm.Name != "" && claim.Key.Name == vm.ClaimName(m.Network, m.Interface) {
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

// confirmedBy reports whether the node that has an address has confirmed that it is the claim's: status.node, which
// agents set to their own node only, names it, or a pod on it uses the claim and has the address in its network-status.
func confirmedBy(
	ctx context.Context, objects store.Objects, holder string, claim store.Object, a netip.Addr,
) (confirmed bool, err error) {
	if claim.Key.Of(store.AddressClaims()) {
		c, err := claim.AddressClaim()
		said := err == nil && c.Node != "" && c.Node == holder // an invalid claim confirms nothing
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
		networks := claimNetworks(pod, claim)
		for _, n := range has {
			confirmed = confirmed || slices.Contains(networks, n.Name) && slices.Contains(n.IPs, a.String())
		}
	})
	if err != nil {
		return false, store.Unreachable("list of pods", err)
	}
	return confirmed, nil
}

// Revoke removes unused grants from a block.
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
	_, err = store.WithTimeout(ctx, func(ctx context.Context) (store.Object, error) {
		return objects.CompareAndSwap(ctx, store.AddressBlocks(), o.Version, next)
	})
	return err
}
