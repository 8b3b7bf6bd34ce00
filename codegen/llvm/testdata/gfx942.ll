; Sums of rows of 64-bit counters and of floats: a wave per row, a scalar loop that
; O3 unrolls, a local variable that it promotes, and a DPP reduction.
target triple = "amdgcn-amd-amdhsa"

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32 immarg, i32 immarg, i32 immarg, i1 immarg)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)

define internal float @shifted(float %x, i32 %unused) {
  %bits = bitcast float %x to i32
  %moved = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %bits, i32 273, i32 15, i32 15, i1 true)
  %back = bitcast i32 %moved to float
  %sum = fadd float %x, %back
  ret float %sum
}

define amdgpu_kernel void @rowsum(ptr addrspace(1) noalias readonly %x, ptr addrspace(1) noalias %counts, ptr addrspace(1) noalias %sums, i32 %columns) #0 {
entry:
  %total = alloca float, addrspace(5)
  store float 0.0, ptr addrspace(5) %total
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %row = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %row, %columns
  br label %loop

loop:
  %i = phi i32 [ %lane, %entry ], [ %i.next, %loop ]
  %at = add i32 %first, %i
  %p = getelementptr float, ptr addrspace(1) %x, i32 %at
  %v = load float, ptr addrspace(1) %p
  %old = load float, ptr addrspace(5) %total
  %new = fadd float %old, %v
  store float %new, ptr addrspace(5) %total
  %i.next = add i32 %i, 64
  %more = icmp ult i32 %i.next, %columns
  br i1 %more, label %loop, label %done

done:
  %mine = load float, ptr addrspace(5) %total
  %pairs = call float @shifted(float %mine, i32 0)
  %bits = bitcast float %pairs to i32
  %last = call i32 @llvm.amdgcn.readlane.i32(i32 %bits, i32 63)
  %sum = bitcast i32 %last to float
  %ps = getelementptr float, ptr addrspace(1) %sums, i32 %row
  store float %sum, ptr addrspace(1) %ps
  %pn = getelementptr i64, ptr addrspace(1) %counts, i32 %row
  %n = load i64, ptr addrspace(1) %pn
  %n.next = add i64 %n, 1
  store i64 %n.next, ptr addrspace(1) %pn
  ret void
}

attributes #0 = { "amdgpu-agpr-alloc"="0" "amdgpu-flat-work-group-size"="64,64" "uniform-work-group-size"="true" }
