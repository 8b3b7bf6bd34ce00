; One 16x16 tile of C = A.B by each wave: bf16 fragments, float accumulators kept
; in registers over a loop, A passing through LDS. Accesses name no alignment on
; purpose: it comes from the data layout.
target triple = "amdgcn-amd-amdhsa"

@stage = internal addrspace(3) global [512 x bfloat] poison

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
declare <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.bf16(<8 x bfloat>, <8 x bfloat>, <4 x float>, i32 immarg, i32 immarg, i32 immarg)

define amdgpu_kernel void @tile(ptr addrspace(1) noalias readonly %a, ptr addrspace(1) noalias readonly %b, ptr addrspace(1) noalias %c, i64 %steps) #0 {
entry:
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %lane64 = zext i32 %lane to i64
  %group64 = zext i32 %group to i64
  %rows = mul i64 %group64, %steps
  %slot = getelementptr <8 x bfloat>, ptr addrspace(3) @stage, i32 %lane
  br label %loop

loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %acc = phi <4 x float> [ zeroinitializer, %entry ], [ %acc.next, %loop ]
  %step = add i64 %rows, %i
  %first = shl i64 %step, 6
  %index = add i64 %first, %lane64
  %pa = getelementptr <8 x bfloat>, ptr addrspace(1) %a, i64 %index
  %va = load <8 x bfloat>, ptr addrspace(1) %pa
  store <8 x bfloat> %va, ptr addrspace(3) %slot
  call void @llvm.amdgcn.s.barrier()
  %mirrored = xor i32 %lane, 63
  %pm = getelementptr <8 x bfloat>, ptr addrspace(3) @stage, i32 %mirrored
  %vm = load <8 x bfloat>, ptr addrspace(3) %pm
  %pb = getelementptr <8 x bfloat>, ptr addrspace(1) %b, i64 %index
  %vb = load <8 x bfloat>, ptr addrspace(1) %pb
  %acc.next = call <4 x float> @llvm.amdgcn.mfma.f32.16x16x32.bf16(<8 x bfloat> %vm, <8 x bfloat> %vb, <4 x float> %acc, i32 0, i32 0, i32 0)
  call void @llvm.amdgcn.s.barrier()
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %steps
  br i1 %more, label %loop, label %done

done:
  %out = shl i64 %group64, 6
  %at = add i64 %out, %lane64
  %pc = getelementptr <4 x float>, ptr addrspace(1) %c, i64 %at
  store <4 x float> %acc.next, ptr addrspace(1) %pc
  ret void
}

attributes #0 = { "amdgpu-agpr-alloc"="0" "amdgpu-flat-work-group-size"="64,64" "uniform-work-group-size"="true" }
