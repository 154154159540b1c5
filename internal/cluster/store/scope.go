// SPDX-License-Identifier: Apache-2.0

package store

import "slices"

// DefaultNamespace is the namespace of a namespaced object whose manifest names none, as it is kubectl's.
const DefaultNamespace = "default"

// namespaced reports whether objects of the kind are in a namespace: the kinds of Kubernetes itself, of weft, and of
// the projects whose objects weft reads. A kind that is in none of these lists keeps the namespace that its manifest
// says.
func namespaced(group, kind string) bool {
	return slices.Contains(namespacedKinds(group), kind)
}

// namespacedKinds are the namespaced kinds of an API group.
func namespacedKinds(group string) []string {
	switch group {
	case "":
		return []string{
			"Binding", "ConfigMap", "Endpoints", "Event", "LimitRange", "PersistentVolumeClaim", "Pod", "PodTemplate",
			"ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount",
		}
	case "apps":
		return []string{"ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"}
	case "batch":
		return []string{"CronJob", "Job"}
	case "autoscaling":
		return []string{"HorizontalPodAutoscaler"}
	case "coordination.k8s.io":
		return []string{"Lease", "LeaseCandidate"}
	case "discovery.k8s.io":
		return []string{"EndpointSlice"}
	case "events.k8s.io":
		return []string{"Event"}
	case "networking.k8s.io":
		return []string{"Ingress", "NetworkPolicy"}
	case "policy":
		return []string{"PodDisruptionBudget"}
	case "rbac.authorization.k8s.io":
		return []string{"Role", "RoleBinding"}
	case "resource.k8s.io":
		return []string{"ResourceClaim", "ResourceClaimTemplate"}
	case "gateway.networking.k8s.io":
		return []string{
			"BackendTLSPolicy", "Gateway", "GRPCRoute", "HTTPRoute", "ReferenceGrant", "TCPRoute", "TLSRoute", "UDPRoute",
		}
	}
	return namespacedOfProjects(group)
}

// namespacedOfProjects are the namespaced kinds of an API group that does not come with Kubernetes.
func namespacedOfProjects(group string) []string {
	switch group {
	case Group:
		return []string{AddressClaims().Kind, AddressMoves().Kind}
	case "k8s.cni.cncf.io":
		return []string{NetworkAttachments().Kind, IPAMClaims().Kind, MultiNetworkPolicies().Kind}
	case "whereabouts.cni.cncf.io":
		return []string{WhereaboutsPools().Kind, WhereaboutsReservations().Kind, WhereaboutsSlices().Kind}
	case "crd.projectcalico.org", "projectcalico.org":
		return []string{"NetworkPolicy", "NetworkSet", "StagedKubernetesNetworkPolicy", "StagedNetworkPolicy"}
	case "kubevirt.io":
		return []string{
			VirtualMachines().Kind, VirtualMachineInstances().Kind, "VirtualMachineInstanceMigration",
			"VirtualMachineInstancePreset", "VirtualMachineInstanceReplicaSet",
		}
	}
	return nil
}
