; Kernels whose groups hand data to each other in global memory, with the fences that
; LLVM makes of the memory orders: for mutants of the waits beside them.

target triple = "amdgcn-amd-amdhsa"

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)

; Each of n groups of one wave stores 3 * in; the one that is last to count itself adds
; up what all of them stored, lane by lane.
define amdgpu_kernel void @last(ptr addrspace(1) %in, ptr addrspace(1) %parts, ptr addrspace(1) %count, ptr addrspace(1) %out, i32 %n) #0 {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = shl i32 %group, 6
  %at = add i32 %first, %lane
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %at
  %x = load i32, ptr addrspace(1) %from
  %y = mul i32 %x, 3
  %to = getelementptr i32, ptr addrspace(1) %parts, i32 %at
  store i32 %y, ptr addrspace(1) %to
  fence syncscope("agent") release
  %is0 = icmp eq i32 %lane, 0
  br i1 %is0, label %counts, label %counted
counts:
  %old = atomicrmw add ptr addrspace(1) %count, i32 1 syncscope("agent") monotonic
  br label %counted
counted:
  %mine = phi i32 [ 0, %0 ], [ %old, %counts ]
  %before = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %mine)
  %most = sub i32 %n, 1
  %islast = icmp eq i32 %before, %most
  br i1 %islast, label %adds, label %end
adds:
  fence syncscope("agent") acquire
  br label %loop
loop:
  %g = phi i32 [ 0, %adds ], [ %next, %loop ]
  %sum = phi i32 [ 0, %adds ], [ %more, %loop ]
  %row = shl i32 %g, 6
  %i = add i32 %row, %lane
  %p = getelementptr i32, ptr addrspace(1) %parts, i32 %i
  %part = load i32, ptr addrspace(1) %p
  %more = add i32 %sum, %part
  %next = add i32 %g, 1
  %again = icmp ult i32 %next, %n
  br i1 %again, label %loop, label %done
done:
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %lane
  store i32 %more, ptr addrspace(1) %o
  br label %end
end:
  ret void
}

; Group 0 stores in + 7 and sets a flag; the others wait for it and store the square of
; what lies there.
define amdgpu_kernel void @flag(ptr addrspace(1) %in, ptr addrspace(1) %data, ptr addrspace(1) %flag, ptr addrspace(1) %out) #0 {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %d = getelementptr i32, ptr addrspace(1) %data, i32 %lane
  %isfirst = icmp eq i32 %group, 0
  br i1 %isfirst, label %gives, label %waits
gives:
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %lane
  %x = load i32, ptr addrspace(1) %from
  %y = add i32 %x, 7
  store i32 %y, ptr addrspace(1) %d
  store atomic i32 1, ptr addrspace(1) %flag release, align 4
  ret void
waits:
  %set = load atomic i32, ptr addrspace(1) %flag acquire, align 4
  %there = icmp eq i32 %set, 1
  br i1 %there, label %takes, label %waits
takes:
  %z = load i32, ptr addrspace(1) %d
  %square = mul i32 %z, %z
  %first = shl i32 %group, 6
  %at = add i32 %first, %lane
  %o = getelementptr i32, ptr addrspace(1) %out, i32 %at
  store i32 %square, ptr addrspace(1) %o
  ret void
}

; Each group adds in to the same words, one group after the other: a lock.
define amdgpu_kernel void @lock(ptr addrspace(1) %in, ptr addrspace(1) %lock, ptr addrspace(1) %sums) #0 {
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = shl i32 %group, 6
  %at = add i32 %first, %lane
  %from = getelementptr i32, ptr addrspace(1) %in, i32 %at
  %x = load i32, ptr addrspace(1) %from
  %is0 = icmp eq i32 %lane, 0
  br i1 %is0, label %takes, label %holds
takes:
  %pair = cmpxchg ptr addrspace(1) %lock, i32 0, i32 1 syncscope("agent") acquire monotonic
  %ok = extractvalue { i32, i1 } %pair, 1
  br i1 %ok, label %holds, label %takes
holds:
  fence syncscope("agent") acquire
  %p = getelementptr i32, ptr addrspace(1) %sums, i32 %lane
  %old = load i32, ptr addrspace(1) %p
  %new = add i32 %old, %x
  store i32 %new, ptr addrspace(1) %p
  fence syncscope("agent") release
  br i1 %is0, label %frees, label %end
frees:
  store atomic i32 0, ptr addrspace(1) %lock syncscope("agent") monotonic, align 4
  br label %end
end:
  ret void
}

attributes #0 = { "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-flat-scratch-init" "amdgpu-no-implicitarg-ptr" "amdgpu-flat-work-group-size"="64,64" }
